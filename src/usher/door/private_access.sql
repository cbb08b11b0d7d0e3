-- name: allow_private
-- Let crawlers connect to a registered host that is not public, at this port and these addresses.
select work.allow_private(%(host)s, %(port)s, %(addresses)s::inet[], %(now)s);

-- name: forbid_private
-- Take every such permission of a host back.
select work.forbid_private(%(host)s);

-- name: private_access
-- Where crawlers may connect to a host that is not public.
select port, addresses, granted_at from work.private_access where host = %(host)s order by port;
