CREATE SCHEMA work;

CREATE FUNCTION work.domain64_decode(domain64 bigint, OUT tld integer, OUT domain integer, OUT subdomain integer, OUT reserved integer) RETURNS record
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
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

CREATE FUNCTION work.domain64_encode(tld integer, domain integer, subdomain integer, reserved integer DEFAULT 0) RETURNS bigint
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
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

COMMENT ON FUNCTION work.domain64_encode(tld integer, domain integer, subdomain integer, reserved integer) IS 'TT:DDDDDD:SSSSSS:RR as one positive bigint.';

CREATE FUNCTION work.domain64_from_hex(digits text) RETURNS bigint
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $_$
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
$_$;

CREATE FUNCTION work.domain64_hex(domain64 bigint) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
begin
    perform work.domain64_decode(domain64);
    return upper(lpad(to_hex(domain64), 16, '0'));
end
$$;

CREATE FUNCTION work.domain64_range(tld integer, domain integer DEFAULT NULL::integer, subdomain integer DEFAULT NULL::integer) RETURNS int8range
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    AS $$
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

COMMENT ON FUNCTION work.domain64_range(tld integer, domain integer, subdomain integer) IS 'Every number under a TLD, a domain or one host: half-open, the last subdomain inside.';

CREATE FUNCTION work.max_bigint() RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN '9223372036854775807'::bigint;

COMMENT ON FUNCTION work.max_bigint() IS 'The largest value of a bigint, as seed 003 names it.';

CREATE TABLE work.domain (
    tld smallint NOT NULL,
    number integer NOT NULL,
    name text NOT NULL,
    CONSTRAINT domain_number_in_range CHECK (((number >= 1) AND (number <= 16777215)))
);

CREATE TABLE work.hosts (
    id bigint NOT NULL,
    domain64 bigint NOT NULL,
    name text NOT NULL,
    next_fetch timestamp with time zone NOT NULL,
    tld smallint GENERATED ALWAYS AS (((domain64 >> 56))::smallint) STORED NOT NULL,
    domain integer GENERATED ALWAYS AS ((((domain64 >> 32) & (16777215)::bigint))::integer) STORED NOT NULL,
    CONSTRAINT domain64_domain CHECK (((domain64 > 0) AND (domain64 <= work.max_bigint())))
);

COMMENT ON COLUMN work.hosts.name IS 'Host name in lower-case ASCII, with its port where that is not the default.';

COMMENT ON COLUMN work.hosts.next_fetch IS 'The host clock: the host is due from this time on.';

ALTER TABLE work.hosts ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME work.hosts_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE work.schema_migrations (
    version character varying NOT NULL
);

CREATE TABLE work.tld (
    code smallint NOT NULL,
    name text NOT NULL,
    CONSTRAINT tld_code_in_range CHECK (((code >= 1) AND (code <= 127)))
);

COMMENT ON TABLE work.tld IS '127 with an empty name stands for every name whose TLD has no code of its own.';

ALTER TABLE ONLY work.domain
    ADD CONSTRAINT domain_pkey PRIMARY KEY (tld, number);

ALTER TABLE ONLY work.domain
    ADD CONSTRAINT domain_tld_name_key UNIQUE (tld, name);

ALTER TABLE ONLY work.hosts
    ADD CONSTRAINT hosts_domain64_key UNIQUE (domain64);

ALTER TABLE ONLY work.hosts
    ADD CONSTRAINT hosts_name_key UNIQUE (name);

ALTER TABLE ONLY work.hosts
    ADD CONSTRAINT hosts_pkey PRIMARY KEY (id);

ALTER TABLE ONLY work.schema_migrations
    ADD CONSTRAINT schema_migrations_pkey PRIMARY KEY (version);

ALTER TABLE ONLY work.tld
    ADD CONSTRAINT tld_name_key UNIQUE (name);

ALTER TABLE ONLY work.tld
    ADD CONSTRAINT tld_pkey PRIMARY KEY (code);

ALTER TABLE ONLY work.domain
    ADD CONSTRAINT domain_tld_fkey FOREIGN KEY (tld) REFERENCES work.tld(code);

ALTER TABLE ONLY work.hosts
    ADD CONSTRAINT hosts_domain_is_registered FOREIGN KEY (tld, domain) REFERENCES work.domain(tld, number);

CREATE SCHEMA control;

CREATE TABLE control.schema_migrations (
    version character varying NOT NULL
);

ALTER TABLE ONLY control.schema_migrations
    ADD CONSTRAINT schema_migrations_pkey PRIMARY KEY (version);

CREATE SCHEMA feeds;

CREATE TABLE feeds.schema_migrations (
    version character varying NOT NULL
);

ALTER TABLE ONLY feeds.schema_migrations
    ADD CONSTRAINT schema_migrations_pkey PRIMARY KEY (version);

CREATE SCHEMA multimatch;

CREATE TABLE multimatch.schema_migrations (
    version character varying NOT NULL
);

ALTER TABLE ONLY multimatch.schema_migrations
    ADD CONSTRAINT schema_migrations_pkey PRIMARY KEY (version);
