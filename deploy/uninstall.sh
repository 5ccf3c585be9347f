#!/bin/sh
# Takes Windlass off every node of the cluster that kubectl talks to: moves its pods away, ends
# what is left of them, removes what it made on the machines, and last itself. What it cannot clean
# it names at the end, and keeps: run it again.
# LEAVE is the file of `cargo xtask manifests`, for images from a registry of your own.
set -eu
here=$(dirname "$0")
patience=${1:-10m}
leave=${LEAVE:+--filename=$LEAVE}
leave=${leave:---kustomize=$here/overlays/leave}

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
  # what a dead machine cannot end is waited for half a minute beyond its time
  # shellcheck disable=SC2086
  kubectl drain $second_nodes --ignore-daemonsets --delete-emptydir-data --force \
    --skip-wait-for-delete-timeout=30 --timeout="$patience" ||
    { echo "nothing is removed: the second nodes are only cordoned" >&2; exit 1; }
fi

# The machines of second nodes, and those that did not get so far. A pod of the overlay comes to
# those that live, and to no other.
begun=$(pods '{.spec.nodeName}')
machines=$(printf '%s\n' "$second_nodes" | sed 's/-windlass$//'; echo "$begun")
ready=$(nodes "$name={.status.conditions[?(@.type=='Ready')].status}")
for machine in $machines; do
  if is_among "$machine=True" "$ready"; then
    kubectl label --overwrite node "$machine" windlass.dev/leave=true
  fi
done
kubectl apply "$leave"
kubectl --namespace=windlass rollout status daemonset/windlass --timeout="$patience" || true

clean=$(pods "{.spec.nodeName}={.status.containerStatuses[?(@.name=='clean')].ready}")
second_nodes=$(nodes "$name" "$second") # one may have joined meanwhile
all=$(nodes "$name")
left=
for machine in $(printf '%s\n' "$machines" "$second_nodes" | sed 's/-windlass$//' | sort -u); do
  # on a machine that the cluster no longer has, there is nothing to be done
  if is_among "$machine=true" "$clean" || ! is_among "$machine" "$all"; then
    kubectl delete --ignore-not-found node "$machine-windlass"
  else
    left="$left $machine"
  fi
done
if [ -n "$left" ]; then
  echo "not clean:$left. Repeat this when they are Ready, or kubectl delete node those that never will be" >&2
  exit 1
fi
kubectl delete "$leave"
kubectl label node --selector=windlass.dev/leave windlass.dev/leave-
