#!/bin/sh
# Removes Windlass from all nodes of the cluster that kubectl uses: drains its nodes, stops the
# remaining pods, removes files and mounts from the hosts, then deletes the DaemonSet. Lists the hosts
# that it could not clean; run it again for these.
# CLEANUP is the file of `cargo xtask manifests`, for images from a registry of your own.
set -eu
here=$(dirname "$0")
timeout=${1:-10m}
cleanup=${CLEANUP:+--filename=$CLEANUP}
cleanup=${cleanup:---kustomize=$here/overlays/cleanup}

# lines of jsonpath $1 for each node that the selector $2 finds, or for each pod of the DaemonSet
nodes() {
  kubectl get nodes --selector="${2-}" --output="jsonpath={range .items[*]}$1{'\n'}{end}"
}
pods() {
  kubectl --namespace=windlass get pods --selector=app.kubernetes.io/name=windlass \
    --output="jsonpath={range .items[*]}$1{'\n'}{end}"
}
is_among() {
  printf '%s\n' "$2" | grep -Fqxe "$1"
}
name={.metadata.name}
second=windlass.dev/side-by-side=true

second_nodes=$(nodes "$name" "$second")
if [ -n "$second_nodes" ]; then
  # do not wait for pods of a host that is down
  # shellcheck disable=SC2086
  kubectl drain $second_nodes --ignore-daemonsets --delete-emptydir-data --force \
    --skip-wait-for-delete-timeout=30 --timeout="$timeout" ||
    { echo "drain failed; nothing removed, the second nodes are cordoned" >&2; exit 1; }
fi

# The hosts of second nodes, and those that did not register one. Only Ready hosts are labeled and
# get a pod of the overlay.
begun=$(pods '{.spec.nodeName}')
machines=$(printf '%s\n' "$second_nodes" | sed 's/-windlass$//'; echo "$begun")
ready=$(nodes "$name={.status.conditions[?(@.type=='Ready')].status}")
for machine in $machines; do
  if is_among "$machine=True" "$ready"; then
    kubectl label --overwrite node "$machine" windlass.dev/cleanup=true
  fi
done
kubectl apply "$cleanup"
kubectl --namespace=windlass rollout status daemonset/windlass --timeout="$timeout" || true

clean=$(pods "{.spec.nodeName}={.status.containerStatuses[?(@.name=='clean')].ready}")
second_nodes=$(nodes "$name" "$second") # more nodes may have joined
all=$(nodes "$name")
left=
for machine in $(printf '%s\n' "$machines" "$second_nodes" | sed 's/-windlass$//' | sort -u); do
  # a host that left the cluster needs no cleanup
  if is_among "$machine=true" "$clean" || ! is_among "$machine" "$all"; then
    kubectl delete --ignore-not-found node "$machine-windlass"
  else
    left="$left $machine"
  fi
done
if [ -n "$left" ]; then
  echo "not clean:$left. Run this again when they are Ready, or run kubectl delete node for lost hosts" >&2
  exit 1
fi
kubectl delete "$cleanup"
kubectl label node --selector=windlass.dev/cleanup windlass.dev/cleanup-
