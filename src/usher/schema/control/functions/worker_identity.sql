-- Whether the session belongs to a job, also inside functions that run with their owner's rights.
create function control.is_worker() returns boolean
    language sql stable
    return 'usher_worker' in (session_user::text, current_setting('role'));

-- The running job whose claim this session has; null if there is none.
create function control.claimed_job() returns bigint
    language sql stable security definer set search_path = ''
as $$
    select id from control.job
    where state = 'running' and claim = nullif(current_setting('usher.claim', true), '')::uuid
        and id = nullif(current_setting('usher.job', true), '')::bigint
$$;

-- The worker's own job; an error if the session belongs to no running job.
create function control.my_job() returns bigint
    language plpgsql stable security definer set search_path = ''
as $$
declare
    mine constant bigint := control.claimed_job();
begin
    if mine is null then
        raise insufficient_privilege using
            message = 'this connection belongs to no running job',
            hint = 'Connect with the USHER_CONTROL_URL that the job was given; its lease may have expired.';
    end if;
    return mine;
end
$$;

-- The job that this session inserted last; null if it inserted none.
create function control.inserted_job() returns bigint
    language plpgsql volatile security definer set search_path = ''
as $$
begin
    return currval('control.job_id_seq');
exception when object_not_in_prerequisite_state then
    return null;
end
$$;
