#!/bin/sh
# Starts Redis with the users of users.acl: start.sh REDIS-SERVER'S ARGUMENTS
#
# A user's password is the variable REDIS_<USER>_PASSWORD, or else the content of the file /run/secrets/redis/<user>; that
# of the user default is REDIS_PASSWORD, or the file `password`. Only its hash is written, so that no password is in a
# command line or file of Redis, and it may have any characters. A user that is optional and has no password is off.
set -eu
passwords=${PASSWORDS:-/run/secrets/redis}
users=${REDIS_USERS:-/run/redis/users.acl}
template=$(dirname "$0")/users.acl

credential() { # USER
  key=$1 variable=REDIS_$(printf %s "$1" | tr '[:lower:]' '[:upper:]')_PASSWORD
  if [ "$1" = default ]; then key=password variable=REDIS_PASSWORD; fi
  password=$(printenv "$variable" || true)
  if [ -z "$password" ] && [ -r "$passwords/$key" ]; then password=$(cat "$passwords/$key"); fi
  if [ -n "$password" ]; then
    printf '#%s' "$(printf %s "$password" | sha256sum | cut -d ' ' -f 1)"
  elif [ "$1" = keda ] || [ "$1" = reward ]; then
    printf off
  else
    where="set $variable in .env, or on Kubernetes the key $key of the Secret plumbline-redis"
    echo "redis: the user $1 has an empty password; $where" >&2
    return 1
  fi
}

umask 077
while read -r line; do
  case $line in
    user\ *)
      user=${line#user }
      user=${user%% *}
      credential=$(credential "$user")
      printf '%s\n' "${line%% PASSWORD*} $credential${line#* PASSWORD}"
      ;;
  esac
done < "$template" > "$users"
exec redis-server "$@"
