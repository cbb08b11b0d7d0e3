grant usage on schema work to usher_door, usher_mgmt, usher_reader;
grant select on work.schema_migrations to usher_door, usher_mgmt, usher_reader;

-- Numbers are given once and for ever: nobody may change or remove a tld or a domain.
grant select on work.tld, work.domain, work.hosts to usher_door, usher_mgmt, usher_reader;
grant insert on work.tld, work.domain, work.hosts to usher_door;
grant update (next_fetch) on work.hosts to usher_door;
