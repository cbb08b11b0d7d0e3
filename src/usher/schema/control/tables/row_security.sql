-- What the login of workers may see and change. A worker sees and changes its own job only, which it proves by the claim in
-- its DSN (usher.claim). PostgreSQL joins policies of one command by "or", so each command has exactly one.

alter table control.job enable row level security;

-- A worker also sees the job that it is inserting, so that `insert … returning id` works. The other conditions come
-- first and hold for no other job, so that the function is called for new jobs of this transaction only.
create policy job_select on control.job for select
    using (
        current_user <> 'usher_worker' or claim = nullif(current_setting('usher.claim', true), '')::uuid
        or (state = 'pending' and last_update = now() and id = control.inserted_job())
    );

create policy job_insert on control.job for insert
    with check (
        state = 'pending' and attempts = 0 and claim is null and lease_until is null and hostname is null
        and process_id is null and (current_user <> 'usher_worker' or control.my_job() is not null)
    );

create policy job_update on control.job for update
    using (
        case current_user
            when 'usher_worker' then claim = nullif(current_setting('usher.claim', true), '')::uuid
            when 'usher_scheduler' then state = 'temporary-error'
            else true
        end
    )
    with check (
        case current_user
            when 'usher_worker' then claim = nullif(current_setting('usher.claim', true), '')::uuid
            when 'usher_scheduler' then state = 'pending'
            else true
        end
    );

create policy job_delete on control.job for delete
    using (current_user not in ('usher_worker', 'usher_scheduler'));

alter table control.job_hierarchy enable row level security;

-- A worker sees its own row and those of its children.
create policy job_hierarchy_own on control.job_hierarchy
    using (
        current_user <> 'usher_worker' or job_id = (select control.claimed_job())
        or parent_job_id = (select control.claimed_job())
    )
    with check (current_user <> 'usher_worker');

alter table control.job_table_item enable row level security;

-- A worker sees and writes the items of its own job.
create policy job_table_item_own on control.job_table_item
    using (current_user <> 'usher_worker' or job_id = (select control.claimed_job()))
    with check (current_user <> 'usher_worker' or job_id = (select control.claimed_job()));

alter table control.job_result enable row level security;

-- A worker sees the result of its own job.
create policy job_result_own on control.job_result
    using (current_user <> 'usher_worker' or job_id = (select control.claimed_job()))
    with check (current_user <> 'usher_worker');

alter table control.job_dependency enable row level security;

-- A worker sees what its own job and its children wait for.
create policy job_dependency_own on control.job_dependency
    using (
        current_user <> 'usher_worker' or job_id = (select control.claimed_job())
        or exists (select from control.job_hierarchy h where h.job_id = job_dependency.job_id)
    )
    with check (current_user <> 'usher_worker');
