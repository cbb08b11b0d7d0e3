grant usage on schema multimatch to usher_feeds, usher_reader;
grant select on multimatch.schema_migrations to usher_feeds, usher_reader;
