-- Domains of jobs and tasks. control.may_run says what a host rule means.
create domain control.host_rule as text collate "C" default ''
    constraint host_rule_readable check (value = lower(value) and value !~ '\s' and value !~ '^(allow|deny):(,.*|)$');

create domain control.job_type as text collate "C"
    constraint job_type_is_a_word check (value ~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$');
