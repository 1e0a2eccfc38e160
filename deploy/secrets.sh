#!/bin/sh
# Makes the secrets that compose.yaml mounts, in ./secrets beside this file (or in the folder given). Those that are there
# already stay as they are.
set -eu

folder=${1:-$(dirname "$0")/secrets}
mkdir -p "$folder"
# Nobody else on this machine gets into the folder; inside a container each file is mounted by itself, and must be
# readable for a user who does not own it.
chmod 0700 "$folder"

random() { od -An -tx1 -N32 /dev/urandom | tr -d ' \n'; }

make() {
    [ -e "$folder/$1" ] || printf '%s\n' "$2" > "$folder/$1"
    chmod 0444 "$folder/$1"
}

make jwt_secret "$(random)"
make api_key "$(random)"
make valkey_auth "requirepass $(random)"
# Made from the password that is there, so that the two cannot differ.
make redis_url "redis://:$(sed -n 's/^requirepass //p' "$folder/valkey_auth")@172.30.80.10:6379"

echo "The secrets are in $folder"
