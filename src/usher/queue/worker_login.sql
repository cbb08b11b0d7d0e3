-- name: login_user
-- The user that a session logged in as, whatever its role.
select session_user::text;
