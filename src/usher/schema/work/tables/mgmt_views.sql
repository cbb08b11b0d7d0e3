-- The six relations of MGMT's database as its first document draws them, to read only.

-- A link that waits is in no chunk (seed 000), although the guestbook remembers the chunk it was in last.
create view mgmt.link as
select
    g.id as index,
    case g.scheme when 1 then 'https' when 2 then 'http' when 3 then 'sftp' else 'ftp' end || '://' || h.name || g.path as link,
    case when g.state <> 'pending' then g.chunk_id end as chunk_id,
    g.state
from work.guestbook g
join work.hosts h using (domain64);

create view mgmt.chunk as
select id as index, id from work.chunk;

create view mgmt.host as
select
    id as index,
    host,
    case type
        when 'crawler' then 'Crawler' when 'index-builder' then 'Index Builder' when 'index-server' then 'Index Server'
        when 'front-end' then 'Front-End' when 'manager' then 'Manager'
    end as type,
    state,
    health
from work.component;

create view mgmt.crawler as
select
    k.id as index, k.id as chunk_id, c.host as c_host,
    case when k.propagated_at is not null then 'propagated' else k.state end as c_task
from work.chunk k
join work.component c on c.id = k.crawler_id;

-- A chunk that a builder had and that waits for another one has failed, or its lease has ended.
create view mgmt.index_builder as
select
    k.id as index, k.id as chunk_id, c.host as ib_host,
    case
        when k.propagated_at is not null then 'propagated'
        when k.index_state is null or k.index_state = 'parked' then 'error'
        else k.index_state
    end as ib_task
from work.chunk k
join work.component c on c.id = k.builder_id;

create view mgmt.index_server as
select row_number() over (order by p.chunk_id, p."row") as index, p."row", p.chunk_id, c.host as is_host
from work.placement p
join work.component c on c.id = p.component_id
where p.state <> 'leaving';
