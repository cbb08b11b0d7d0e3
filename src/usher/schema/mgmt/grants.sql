grant usage on schema mgmt to usher_mgmt, usher_reader;
grant select on mgmt.schema_migrations to usher_mgmt, usher_reader;
grant select on mgmt.link, mgmt.chunk, mgmt.host, mgmt.crawler, mgmt.index_builder, mgmt.index_server
    to usher_mgmt, usher_reader;
