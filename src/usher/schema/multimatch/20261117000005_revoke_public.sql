-- migrate:up

-- PUBLIC, that is every login of the server, may execute new functions by default. A step that creates functions
-- revokes this itself, so that it also holds after a plain dbmate run.
revoke execute on all functions in schema multimatch from public;

-- migrate:down

-- Nothing to undo: grants.sql grants each role what it needs.
