-- A domain64 is the number of a host: TLD, domain and subdomain in one bigint, so that all hosts of a domain are one range.

create function work.max_bigint() returns bigint
    immutable parallel safe language sql
    return 9223372036854775807;

comment on function work.max_bigint() is 'The largest value of a bigint, as seed 003 names it.';

create function work.domain64_encode(tld integer, domain integer, subdomain integer, reserved integer default 0)
    returns bigint
    immutable strict parallel safe language plpgsql
as $$
begin
    if tld not between 1 and 127 then
        raise numeric_value_out_of_range using message = format('tld %s is not between 1 and 127', tld);
    end if;
    if domain not between 0 and 16777215 then
        raise numeric_value_out_of_range using message = format('domain %s is not between 0 and 16777215', domain);
    end if;
    if subdomain not between 0 and 16777215 then
        raise numeric_value_out_of_range
            using message = format('subdomain %s is not between 0 and 16777215', subdomain);
    end if;
    if reserved not between 0 and 255 then
        raise numeric_value_out_of_range using message = format('reserved %s is not between 0 and 255', reserved);
    end if;
    return (tld::bigint << 56) | (domain::bigint << 32) | (subdomain::bigint << 8) | reserved;
end
$$;

comment on function work.domain64_encode(integer, integer, integer, integer) is
    'TT:DDDDDD:SSSSSS:RR as one positive bigint.';

-- The parts of a domain64; an error if it is none.
create function work.domain64_decode(
    domain64 bigint, out tld integer, out domain integer, out subdomain integer, out reserved integer
)
    immutable strict parallel safe language plpgsql
as $$
begin
    tld := (domain64 >> 56)::integer;
    if domain64 <= 0 or tld = 0 then
        raise numeric_value_out_of_range using message = format('%s is not a domain64', domain64);
    end if;
    domain := ((domain64 >> 32) & 16777215)::integer;
    subdomain := ((domain64 >> 8) & 16777215)::integer;
    reserved := (domain64 & 255)::integer;
end
$$;

-- A domain64 as 16 hexadecimal digits, and back.
create function work.domain64_hex(domain64 bigint) returns text
    immutable strict parallel safe language plpgsql
as $$
begin
    perform work.domain64_decode(domain64);
    return upper(lpad(to_hex(domain64), 16, '0'));
end
$$;

create function work.domain64_from_hex(digits text) returns bigint
    immutable strict parallel safe language plpgsql
as $$
declare
    value bigint;
begin
    if digits !~ '^[0-9A-Fa-f]{1,16}$' then
        raise invalid_text_representation using message = format('%s is not 1 to 16 hexadecimal digits', digits);
    end if;
    value := ('x' || lpad(digits, 16, '0'))::bit(64)::bigint;
    perform work.domain64_decode(value);
    return value;
end
$$;

create function work.domain64_range(tld integer, domain integer default null, subdomain integer default null)
    returns int8range
    immutable parallel safe language plpgsql
as $$
declare
    lowest bigint := work.domain64_encode(tld, coalesce(domain, 0), coalesce(subdomain, 0));
    span bigint := case
        when domain is null then 1::bigint << 56
        when subdomain is null then 1::bigint << 32
        else 1::bigint << 8
    end;
begin
    if domain is null and subdomain is not null then
        raise invalid_parameter_value using message = 'a subdomain without a domain has no range';
    end if;
    -- The prefix after the last one is no bigint; nothing is lost, a host's reserved byte is 0.
    if lowest > work.max_bigint() - span then
        return int8range(lowest, work.max_bigint());
    end if;
    return int8range(lowest, lowest + span);
end
$$;

comment on function work.domain64_range(integer, integer, integer) is
    'Every number under a TLD, a domain or one host: half-open, the last subdomain inside.';
