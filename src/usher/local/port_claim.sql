-- name: component_at
-- The component of a type at an address.
select id from work.component where host = %(host)s and type = %(type)s;

-- name: move_component
-- Gives a component another address. It stays the same component, so that its chunks and placements stay its own.
update work.component set host = %(new)s, health_url = null
where host = %(old)s and type = %(type)s
    and not exists (select from work.component o where o.host = %(new)s and o.type = %(type)s)
returning id;
