grant usage on schema feeds to usher_feeds, usher_reader;
grant select on feeds.schema_migrations to usher_feeds, usher_reader;
