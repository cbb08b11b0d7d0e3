-- name: host_of
-- The name that the manager of a job goes by.
select hostname from control.job where id = %(id)s;

-- name: say
-- What came of a job that is still ours.
update control.job
set message = %(words)s, last_update = %(now)s
where id = %(id)s and claim = %(claim)s and state = 'running';

-- name: wrote
-- Which items a job wrote, so that people can ask who made one.
insert into control.job_table_item (job_id, table_name, table_row_id)
select %(job)s, 'feeds.feed_item', r from unnest(%(rows)s::text[]) as r;
