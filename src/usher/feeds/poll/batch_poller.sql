-- name: manager_of
-- The host name of the manager that claimed a job.
select hostname from control.job where id = %(id)s;

-- name: set_message
-- The message of a job that this claim still holds.
update control.job
set message = %(words)s, last_update = %(now)s
where id = %(id)s and claim = %(claim)s and state = 'running';

-- name: add_written_items
-- The items that a job wrote.
insert into control.job_table_item (job_id, table_name, table_row_id)
select %(job)s, 'feeds.feed_item', r from unnest(%(rows)s::text[]) as r;
