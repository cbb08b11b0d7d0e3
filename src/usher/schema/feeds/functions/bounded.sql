-- A number that a feed contains, limited to what a column of 4 or 8 bytes can hold; null stays null.
create function feeds.bounded4(n numeric) returns integer
    language sql immutable strict
return least(n, 2147483647)::integer;

create function feeds.bounded8(n numeric) returns bigint
    language sql immutable strict
return least(n, 9223372036854775807)::bigint;
