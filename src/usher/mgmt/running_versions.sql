-- name: process_versions
-- The versions of the processes that are connected to the database, without this one's connection.
select version from work.session_versions() order by version;

-- name: component_versions
-- The components that are not lost or stopped, by version and type; the version is empty if they declared none.
select version, type, count(*) as number, min(host) as host
from work.component
where health <> 'failure' and state <> 'waiting'
group by version, type
order by version, type;
