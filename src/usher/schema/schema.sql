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

CREATE FUNCTION work.guestbook_host_exists() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
    -- "offset 0" keeps the look-up by index: the planner cannot know how few rows a batch has.
    if exists (
        select from fresh where not exists (select from work.hosts h where h.domain64 = fresh.domain64 offset 0)
    ) then
        raise foreign_key_violation using message = 'a page of guestbook has no host';
    end if;
    return null;
end
$$;

CREATE FUNCTION work.max_bigint() RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN '9223372036854775807'::bigint;

COMMENT ON FUNCTION work.max_bigint() IS 'The largest value of a bigint, as seed 003 names it.';

CREATE FUNCTION work.never_deleted() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
    raise restrict_violation using message = format('rows of %I.%I are never deleted', tg_table_schema, tg_table_name);
end
$$;

CREATE FUNCTION work.never_renumbered() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
    raise restrict_violation using message = 'a host keeps its number and its name';
end
$$;

CREATE TABLE work.content_type (
    code smallint NOT NULL,
    name text NOT NULL
);

CREATE TABLE work.domain (
    tld smallint NOT NULL,
    number integer NOT NULL,
    name text NOT NULL,
    CONSTRAINT domain_number_in_range CHECK (((number >= 1) AND (number <= 16777215)))
);

CREATE TABLE work.guestbook (
    id bigint NOT NULL,
    domain64 bigint NOT NULL,
    next_fetch timestamp with time zone NOT NULL,
    admitted_at timestamp with time zone,
    last_fetched timestamp with time zone,
    last_modified timestamp with time zone,
    chunk_id bigint,
    cadence interval,
    content_length integer DEFAULT 0 NOT NULL,
    scheme smallint DEFAULT 1 NOT NULL,
    content_type smallint DEFAULT 1 NOT NULL,
    status smallint,
    failures smallint DEFAULT 0 NOT NULL,
    priority smallint DEFAULT 1 NOT NULL,
    gone boolean DEFAULT false NOT NULL,
    state text DEFAULT 'idle'::text NOT NULL,
    path text NOT NULL COLLATE pg_catalog."C",
    content_sha1 text,
    etag text,
    CONSTRAINT guestbook_admitted_if_waiting CHECK (((state <> ALL (ARRAY['pending'::text, 'crawling'::text])) OR (admitted_at IS NOT NULL))),
    CONSTRAINT guestbook_cadence_positive CHECK ((cadence > '00:00:00'::interval)),
    CONSTRAINT guestbook_failures_not_negative CHECK ((failures >= 0)),
    CONSTRAINT guestbook_length_not_negative CHECK ((content_length >= 0)),
    CONSTRAINT guestbook_path_short CHECK (((octet_length(path) >= 1) AND (octet_length(path) <= 2000))),
    CONSTRAINT guestbook_scheme_known CHECK (((scheme >= 1) AND (scheme <= 4))),
    CONSTRAINT guestbook_state_known CHECK ((state = ANY (ARRAY['idle'::text, 'pending'::text, 'crawling'::text, 'crawled'::text, 'error'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='5000', autovacuum_vacuum_cost_delay='0');

COMMENT ON TABLE work.guestbook IS 'Every page we know, one row a URL, for ever: a page may be gone, its row never is.';

COMMENT ON COLUMN work.guestbook.last_fetched IS 'Set by a fetch and by nothing else.';

COMMENT ON COLUMN work.guestbook.content_type IS 'A code of work.content_type.';

COMMENT ON COLUMN work.guestbook.priority IS 'Lower goes first; 0 is the front, where a hall pass puts a page.';

ALTER TABLE work.guestbook ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME work.guestbook_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE work.hosts (
    id bigint NOT NULL,
    domain64 bigint NOT NULL,
    name text NOT NULL,
    next_fetch timestamp with time zone NOT NULL,
    tld smallint GENERATED ALWAYS AS (((domain64 >> 56))::smallint) STORED NOT NULL,
    domain integer GENERATED ALWAYS AS ((((domain64 >> 32) & (16777215)::bigint))::integer) STORED NOT NULL,
    scheme smallint DEFAULT 1 NOT NULL,
    cadence interval,
    adaptive boolean DEFAULT false NOT NULL,
    crawl_started timestamp with time zone,
    crawl_delay interval,
    ready_at timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL,
    policy text DEFAULT 'open'::text NOT NULL,
    policy_reason text DEFAULT ''::text NOT NULL,
    scope text DEFAULT 'host'::text NOT NULL,
    scope_ranges int8multirange DEFAULT '{}'::int8multirange NOT NULL,
    filters jsonb DEFAULT '[]'::jsonb NOT NULL,
    revision integer DEFAULT 1 NOT NULL,
    CONSTRAINT domain64_domain CHECK (((domain64 > 0) AND (domain64 <= work.max_bigint()))),
    CONSTRAINT hosts_cadence_positive CHECK ((cadence > '00:00:00'::interval)),
    CONSTRAINT hosts_crawl_delay_not_negative CHECK ((crawl_delay >= '00:00:00'::interval)),
    CONSTRAINT hosts_filters_are_a_list CHECK ((jsonb_typeof(filters) = 'array'::text)),
    CONSTRAINT hosts_policy_known CHECK ((policy = ANY (ARRAY['open'::text, 'paused'::text, 'blocked'::text]))),
    CONSTRAINT hosts_scheme_known CHECK (((scheme >= 1) AND (scheme <= 4))),
    CONSTRAINT hosts_scope_known CHECK ((scope = ANY (ARRAY['host'::text, 'domain'::text, 'listed'::text, 'any'::text])))
);

COMMENT ON COLUMN work.hosts.name IS 'Host name in lower-case ASCII, with its port where that is not the default.';

COMMENT ON COLUMN work.hosts.next_fetch IS 'The host clock: the host is due from this time on.';

COMMENT ON COLUMN work.hosts.crawl_started IS 'When the crawl that is open now began; null while none is.';

COMMENT ON COLUMN work.hosts.crawl_delay IS 'Rest between two requests; null for the default.';

COMMENT ON COLUMN work.hosts.ready_at IS 'Politeness: nobody asks the host for a page before this time.';

COMMENT ON COLUMN work.hosts.scope IS 'Which links found on this host may bring new hosts or pages in.';

COMMENT ON COLUMN work.hosts.revision IS 'Counts changes of policy, scope and filters.';

ALTER TABLE work.hosts ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME work.hosts_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE work.house (
    one boolean DEFAULT true NOT NULL,
    revision integer DEFAULT 1 NOT NULL,
    cadence interval DEFAULT '30 days'::interval NOT NULL,
    filters jsonb DEFAULT '[]'::jsonb NOT NULL,
    CONSTRAINT house_cadence_positive CHECK ((cadence > '00:00:00'::interval)),
    CONSTRAINT house_filters_are_a_list CHECK ((jsonb_typeof(filters) = 'array'::text)),
    CONSTRAINT house_has_one_row CHECK (one)
);

COMMENT ON COLUMN work.house.revision IS 'Counts changes of the filters, so that whoever judged by older ones knows.';

CREATE TABLE work.schema_migrations (
    version character varying NOT NULL
);

CREATE TABLE work.tld (
    code smallint NOT NULL,
    name text NOT NULL,
    CONSTRAINT tld_code_in_range CHECK (((code >= 1) AND (code <= 127)))
);

COMMENT ON TABLE work.tld IS '127 with an empty name stands for every name whose TLD has no code of its own.';

ALTER TABLE ONLY work.content_type
    ADD CONSTRAINT content_type_name_key UNIQUE (name);

ALTER TABLE ONLY work.content_type
    ADD CONSTRAINT content_type_pkey PRIMARY KEY (code);

ALTER TABLE ONLY work.domain
    ADD CONSTRAINT domain_pkey PRIMARY KEY (tld, number);

ALTER TABLE ONLY work.domain
    ADD CONSTRAINT domain_tld_name_key UNIQUE (tld, name);

ALTER TABLE ONLY work.guestbook
    ADD CONSTRAINT guestbook_domain64_path_key UNIQUE (domain64, path);

ALTER TABLE ONLY work.guestbook
    ADD CONSTRAINT guestbook_pkey PRIMARY KEY (id);

ALTER TABLE ONLY work.hosts
    ADD CONSTRAINT hosts_domain64_key UNIQUE (domain64);

ALTER TABLE ONLY work.hosts
    ADD CONSTRAINT hosts_name_key UNIQUE (name);

ALTER TABLE ONLY work.hosts
    ADD CONSTRAINT hosts_pkey PRIMARY KEY (id);

ALTER TABLE ONLY work.house
    ADD CONSTRAINT house_pkey PRIMARY KEY (one);

ALTER TABLE ONLY work.schema_migrations
    ADD CONSTRAINT schema_migrations_pkey PRIMARY KEY (version);

ALTER TABLE ONLY work.tld
    ADD CONSTRAINT tld_name_key UNIQUE (name);

ALTER TABLE ONLY work.tld
    ADD CONSTRAINT tld_pkey PRIMARY KEY (code);

CREATE INDEX guestbook_crawling ON work.guestbook USING btree (domain64) WHERE (state = 'crawling'::text);

CREATE INDEX guestbook_pending ON work.guestbook USING btree (domain64, priority, id) WHERE (state = 'pending'::text);

CREATE INDEX guestbook_retry ON work.guestbook USING btree (next_fetch) WHERE (state = 'error'::text);

CREATE INDEX hosts_due ON work.hosts USING btree (next_fetch);

CREATE TRIGGER guestbook_host_exists AFTER INSERT ON work.guestbook REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION work.guestbook_host_exists();

CREATE TRIGGER guestbook_is_never_deleted BEFORE DELETE OR TRUNCATE ON work.guestbook FOR EACH STATEMENT EXECUTE FUNCTION work.never_deleted();

CREATE TRIGGER hosts_are_never_deleted BEFORE DELETE OR TRUNCATE ON work.hosts FOR EACH STATEMENT EXECUTE FUNCTION work.never_deleted();

CREATE TRIGGER hosts_are_never_renumbered BEFORE UPDATE OF domain64, name ON work.hosts FOR EACH ROW WHEN (((old.domain64 <> new.domain64) OR (old.name <> new.name))) EXECUTE FUNCTION work.never_renumbered();

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
