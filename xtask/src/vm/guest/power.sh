#!/bin/sh
# Runs the scripts of the host: reads a line with a number and a script in base64, and writes a line with
# the number and the output in base64.
port=/dev/virtio-ports/windlass.control
until [ -e "$port" ]; do
  sleep 0.2
done
exec 3<>"$port"
while read -r number script <&3; do
  output=$(printf %s "$script" | base64 -d | timeout 300 sh 2>&1 | base64 -w0)
  printf '%s %s\n' "$number" "$output" >&3
done
