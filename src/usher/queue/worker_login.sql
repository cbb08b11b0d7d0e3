-- name: login_user
-- The user that a session logged in as, whatever role it has taken on.
select session_user::text;
