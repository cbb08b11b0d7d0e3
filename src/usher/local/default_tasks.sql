-- name: claim_default_tasks
-- Whether the default tasks are to be added: true for one caller, once.
update control.settings set default_tasks_at = %(now)s where default_tasks_at is null returning true;
