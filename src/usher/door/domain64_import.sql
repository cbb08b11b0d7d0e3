-- name: current_holders
-- What the registry has for each published line, both ways: code and name of the TLD, number and name of the domain,
-- number and name of the host. 127 is shared by many TLDs and belongs to none.
select
    tld_by_name.code, tld_by_code.name, domain_by_name.number, domain_by_number.name, host_by_name.domain64,
    host_by_number.name
from unnest(
    %(codes)s::smallint[], %(tlds)s::text[], %(numbers)s::int[], %(domains)s::text[], %(domain64s)s::bigint[],
    %(names)s::text[]
) with ordinality as given (code, tld, number, domain, domain64, name, position)
left join work.tld tld_by_name on tld_by_name.name = given.tld
left join work.tld tld_by_code on tld_by_code.code = given.code and given.code < 127
left join work.domain domain_by_name on domain_by_name.tld = given.code and domain_by_name.name = given.domain
left join work.domain domain_by_number on domain_by_number.tld = given.code and domain_by_number.number = given.number
left join work.hosts host_by_name on host_by_name.name = given.name
left join work.hosts host_by_number on host_by_number.domain64 = given.domain64
order by given.position;

-- name: import_tlds
-- Registers TLDs with published codes; skips those that are taken.
insert into work.tld (code, name)
select code, name
from unnest(%(codes)s::smallint[], %(names)s::text[]) as given (code, name)
on conflict do nothing;
