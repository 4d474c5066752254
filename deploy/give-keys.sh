#!/bin/sh
# Gives each node of a cluster its own keys, on the host that has the authority:
#
#     sh deploy/give-keys.sh ray-keys 10.0.0.2 10.0.0.3
#
# Certificates are made here, and a node gets no other node's. The key of the authority stays here.
# A node that has its keys already gets the same once more. `ssh` must log in without a question, as
# a user who can write to /etc/pubstorm there; the variable SSH is another command for it.
set -eu
keys=$1
shift
for node in "$@"; do
    folder=$keys/node-$node
    test -e "$folder" || "${PUBSTORM:-pubstorm}" ray-keys --node "$node" --out "$keys"
    # The environment comes last: a node that waits for it has all files then.
    tar -C "$folder" -c ca.crt node.crt node.key token environment |
        ${SSH:-ssh} "$node" 'umask 077 && tar -C /etc/pubstorm -x --no-same-owner'
    echo "$node has its keys"
done
