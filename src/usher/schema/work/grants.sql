grant usage on schema work to usher_door, usher_mgmt, usher_reader;
grant select on work.schema_migrations to usher_door, usher_mgmt, usher_reader;

-- Numbers are given once and for ever: nobody may change or remove a tld or a domain.
grant select on work.tld, work.domain, work.hosts to usher_door, usher_mgmt, usher_reader;
grant insert on work.tld, work.domain, work.hosts to usher_door;

grant select on work.house, work.guestbook, work.content_type to usher_door, usher_mgmt, usher_reader;
grant update (revision, cadence, filters) on work.house to usher_door;
grant insert, update on work.guestbook to usher_door;
grant update (next_fetch, crawl_started, cadence, adaptive, crawl_delay, ready_at, policy, policy_reason, scope,
    scope_ranges, filters, revision) on work.hosts to usher_door;
