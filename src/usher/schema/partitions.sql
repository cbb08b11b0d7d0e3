-- name: present_bounds
-- Where the partitions of the guestbook begin, without the first, which begins at the smallest number. Null if it is one table.
select case when c.relkind = 'p' then array(
    select (regexp_match(pg_get_expr(p.relpartbound, p.oid), $$FROM \('(-?\d+)'\)$$))[1]::bigint
    from pg_inherits i join pg_class p on p.oid = i.inhrelid
    where i.inhparent = c.oid and pg_get_expr(p.relpartbound, p.oid) not like '%(MINVALUE)%'
    order by 1
) end
from pg_class c
where c.oid = 'work.guestbook'::regclass;

-- name: size
-- The estimated number of pages, and the bytes of the guestbook without and with its indexes.
select
    coalesce(sum(greatest(c.reltuples, 0)) filter (where c.relkind = 'r'), 0)::bigint as pages, sum(pg_table_size(c.oid))::bigint as table_bytes,
    sum(pg_total_relation_size(c.oid))::bigint as bytes
from pg_class c
where c.oid = 'work.guestbook'::regclass or c.oid in (select inhrelid from pg_inherits where inhparent = 'work.guestbook'::regclass);

-- name: equal_parts
-- Parts of equal size that begin at these shares of the pages: first host, hosts and pages of each, in a sample of the blocks.
with sample as materialized (
    select domain64 from work.guestbook tablesample system (%(percent)s) repeatable (0)
),
quantile as (
    select percentile_disc(%(fractions)s::float8[]) within group (order by domain64) as hosts from sample
),
bound as (
    select array(select distinct host from unnest(hosts) host where host > hosts[1] order by host) as hosts from quantile
)
select min(s.domain64) as first_host, count(distinct s.domain64) as hosts, count(*) as pages
from sample s cross join bound b
group by width_bucket(s.domain64, b.hosts)
order by first_host;

-- name: other_sessions
-- The sessions of other Usher processes on this database: what they call themselves, and how many.
select application_name, count(*)
from pg_stat_activity
where datid = (select oid from pg_database where datname = current_database())
    and pid <> pg_backend_pid() and application_name like 'usher%'
group by application_name
order by application_name;

-- name: foreign_objects
-- What others attached to the guestbook, and a new table would not have.
select format('policy %I', polname) from pg_policy where polrelid = 'work.guestbook'::regclass
union all
select format('rule %I', rulename) from pg_rewrite where ev_class = 'work.guestbook'::regclass
union all
select format('foreign key %I of %s', conname, conrelid::regclass)
from pg_constraint
where contype = 'f' and 'work.guestbook'::regclass in (confrelid, conrelid)
union all
select format('publication %I', p.pubname)
from pg_publication_rel r join pg_publication p on p.oid = r.prpubid
where r.prrelid = 'work.guestbook'::regclass
union all
select format('privileges on column %I', attname)
from pg_attribute
where attrelid = 'work.guestbook'::regclass and attacl is not null;

-- name: columns
-- The columns that a copy has to fill.
select attname::text
from pg_attribute
where attrelid = 'work.guestbook'::regclass and attnum > 0 and not attisdropped and attgenerated = ''
order by attnum;

-- name: storage_options
-- The storage parameters of the table, or of its first partition; null if it has none.
select array_to_string(c.reloptions, ', ')
from pg_class c
where c.relkind = 'r' and (
    c.oid = 'work.guestbook'::regclass or c.oid in (select inhrelid from pg_inherits where inhparent = 'work.guestbook'::regclass)
)
order by c.relname
limit 1;

-- name: keys
-- The primary key and the unique constraints: name, kind, columns, and storage parameters of their indexes.
select
    k.conname::text as name, case k.contype when 'p' then 'primary key' else 'unique' end as kind,
    array(
        select a.attname::text from unnest(k.conkey) with ordinality as c (number, place)
        join pg_attribute a on a.attrelid = k.conrelid and a.attnum = c.number
        order by c.place
    ) as columns,
    array_to_string(i.reloptions, ', ') as options
from pg_constraint k
join pg_class i on i.oid = k.conindid
where k.conrelid = 'work.guestbook'::regclass and k.contype in ('p', 'u')
order by k.contype, k.conname;

-- name: indexes
-- The commands that create the other indexes.
select replace(pg_get_indexdef(i.indexrelid), ' ON ONLY ', ' ON ')
from pg_index i
where i.indrelid = 'work.guestbook'::regclass and not exists (select from pg_constraint k where k.conindid = i.indexrelid)
order by i.indexrelid;

-- name: triggers
-- The commands that create the triggers, and whether each is for a statement: partitions inherit only those for rows.
select pg_get_triggerdef(t.oid), t.tgtype & 1 = 0
from pg_trigger t
where t.tgrelid = 'work.guestbook'::regclass and not t.tgisinternal
order by t.tgname;

-- name: dependent_functions
-- The functions that take a row of the guestbook: how to drop and how to create each.
select format('drop function %s', p.oid::regprocedure), pg_get_functiondef(p.oid)
from pg_proc p
where p.oid in (
    select d.objid from pg_depend d
    join pg_class c on c.oid = 'work.guestbook'::regclass
    where d.classid = 'pg_proc'::regclass and d.refclassid = 'pg_type'::regclass and d.refobjid = c.reltype
)
order by p.oid;

-- name: dependent_views
-- The views on the guestbook: how to drop and how to create each.
select format('drop view %s', v.oid::regclass), format('create view %s as %s', v.oid::regclass, pg_get_viewdef(v.oid))
from pg_class v
where v.relkind = 'v' and v.oid in (
    select r.ev_class from pg_depend d join pg_rewrite r on r.oid = d.objid
    where d.classid = 'pg_rewrite'::regclass and d.refclassid = 'pg_class'::regclass
        and d.refobjid = 'work.guestbook'::regclass
)
order by v.oid;

-- name: privileges
-- The commands that give the guestbook, its sequence and what depends on it their owners, privileges and comments again.
with renewed (name, kind, oid, acl, owner, comment) as (
    select c.oid::regclass::text, case when c.relkind = 'S' then 'sequence' when c.relkind = 'v' then 'view' else 'table' end,
        c.oid, c.relacl, c.relowner, obj_description(c.oid, 'pg_class')
    from pg_class c
    where c.oid in ('work.guestbook'::regclass, pg_get_serial_sequence('work.guestbook', 'id')::regclass)
        or c.relkind = 'v' and c.oid in (
            select r.ev_class from pg_depend d join pg_rewrite r on r.oid = d.objid
            where d.classid = 'pg_rewrite'::regclass and d.refclassid = 'pg_class'::regclass
                and d.refobjid = 'work.guestbook'::regclass
        )
    union all
    select p.oid::regprocedure::text, 'function', p.oid, coalesce(p.proacl, acldefault('f', p.proowner)), p.proowner,
        obj_description(p.oid, 'pg_proc')
    from pg_proc p
    where p.oid in (
        select d.objid from pg_depend d
        join pg_class c on c.oid = 'work.guestbook'::regclass
        where d.classid = 'pg_proc'::regclass and d.refclassid = 'pg_type'::regclass and d.refobjid = c.reltype
    )
),
commands (step, command) as (
    select 1, format('alter %s %s owner to %I', kind, name, pg_get_userbyid(owner)) from renewed where kind <> 'sequence'
    union all
    select 2, format('comment on %s %s is %L', kind, name, comment) from renewed where comment is not null
    union all
    select 3, format('revoke all on function %s from public', name) from renewed where kind = 'function'
    union all
    select 4, format(
        'grant %s on %s %s to %s%s', e.privilege_type, case kind when 'view' then 'table' else kind end, name,
        case when e.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(e.grantee)) end,
        case when e.is_grantable then ' with grant option' else '' end
    )
    from renewed cross join aclexplode(acl) e
)
select command from commands order by step, command;

-- name: sequence_state
-- The last id, and whether it was issued.
select last_value, is_called from work.guestbook_id_seq;
