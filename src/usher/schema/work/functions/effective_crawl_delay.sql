-- The pause between two requests to a host: what the operator set for the host, else the longer of the general delay and the
-- delay that its robots.txt asks for. This function is the only place of the rule. PostgreSQL inlines it.
create function work.effective_crawl_delay(host_delay interval, robots_delay interval, general_delay interval) returns interval
    language sql immutable
as $$ select coalesce(host_delay, greatest(general_delay, robots_delay)) $$;
