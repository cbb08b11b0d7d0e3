-- name: component_of_process
-- The component of the first of these types at these addresses.
select c.id
from unnest(%(hosts)s::text[], %(types)s::text[]) with ordinality as given (host, type, place)
join work.component c on c.host = given.host and c.type = given.type
order by given.place
limit 1;
