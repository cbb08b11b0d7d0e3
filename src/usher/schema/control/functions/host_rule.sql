-- Which machine may run a job: any (''), one by name, those allowed, or all but those denied.
create function control.may_run(rule text, host text) returns boolean
    language sql immutable parallel safe
    return case
        when rule = '' then true
        when rule like 'allow:%' then host = any(string_to_array(substr(rule, 7), ','))
        when rule like 'deny:%' then host <> all(string_to_array(substr(rule, 6), ','))
        else rule = host
    end;
