grant usage on schema control to usher_manager, usher_scheduler, usher_worker, usher_reader;
grant select on control.schema_migrations to usher_manager, usher_scheduler, usher_worker, usher_reader;
