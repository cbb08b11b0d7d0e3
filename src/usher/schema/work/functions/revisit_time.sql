-- When a page is fetched again. PostgreSQL inlines these functions. tests/support/models/revisit.py is a model of them.

-- The pause after a fetch: the cadence; an hour at most after the first 404 of an indexed page (work.is_gone); after failures an
-- hour that doubles each time, at most the cadence. `failures` counts earlier failures in a row.
create function work.revisit_pause(cadence interval, result text, gone boolean, failures smallint) returns interval
    language sql immutable
as $$
    select case
        when result = 'failure' then least(cadence, interval '1 hour' * power(2, least(failures, 20)))
        when result = 'gone' and not gone then least(cadence, interval '1 hour')
        else cadence
    end
$$;

-- The next cadence of a page of an adaptive host: half of the last one if the page changed, else half as much again; in whole
-- seconds, at least an hour and an eighth of the host's cadence, at most four times the host's cadence.
create function work.adapted_cadence(cadence interval, host_cadence interval, changed boolean) returns interval
    language sql immutable
as $$
    select make_interval(
        secs => least(
            greatest(
                case
                    when changed then div(extract(epoch from cadence), 2)
                    else div(extract(epoch from cadence) * 3, 2)
                end,
                3600,
                div(extract(epoch from host_cadence), 8)
            ),
            extract(epoch from host_cadence) * 4
        )
    )
$$;

-- The pause after the last visit to a page that changed meanwhile according to its site: an hour, or an eighth of the host's cadence.
create function work.hinted_pause(host_cadence interval) returns interval
    language sql immutable
as $$ select make_interval(secs => greatest(3600, div(extract(epoch from host_cadence), 8))) $$;
