-- A new name for a document of this MIME type. Two calls never return the same.
create function multimatch.new_urn(mime text, cached boolean default true) returns text
    language sql volatile
    return 'urn:multimatch:' || case when cached then 'cached' else 'nonCached' end || ':' || replace(mime, '/', '_') || ':'
        || replace(gen_random_uuid()::text, '-', '');
