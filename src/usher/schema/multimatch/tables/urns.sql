-- An example of an extension: names (URNs) for the rows of the schema `feeds`, in a schema of their own. No key and no
-- view ties this schema to the tables of `feeds`: each can be dumped, restored, rolled back and dropped alone. A name
-- remains when its feed, item or enclosure is deleted.
create domain multimatch.urn as text
    constraint urn_well_formed check (value ~ '^urn:multimatch:(cached|nonCached):[^:]+:[0-9a-f]{32}$');

create table multimatch.feed_urn (
    feed_id bigint primary key,
    urn multimatch.urn not null unique default multimatch.new_urn('text/xml')
);

create table multimatch.feed_item_urn (
    feed_item_id bigint primary key,
    urn multimatch.urn not null unique default multimatch.new_urn('text/xml')
);

create table multimatch.enclosure_urn (
    enclosure_id bigint primary key,
    urn multimatch.urn not null unique default multimatch.new_urn('text/xml'),
    wrapper_urn multimatch.urn not null unique default multimatch.new_urn('text/xml'),
    transcription_urn multimatch.urn not null unique default multimatch.new_urn('text/xml')
);
