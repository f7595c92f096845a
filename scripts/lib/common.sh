# Shared by ./gt and the scripts; $root is the top of the checkout. What the set-up says goes to stderr, so that the
# output of gt itself can be redirected.

cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/graphtrainer # libtorch and compiler results, shared between checkouts
logs=$root/build/logs

say() { printf 'gt: %s\n' "$*" >&2; }

die() {
  say "$*"
  exit 1
}

# step LOG COMMAND...: runs a long command quietly; when it fails, shows the end of what it said.
step() {
  local log=$logs/$1.log status=0
  shift
  mkdir -p "$logs"
  "$@" >"$log" 2>&1 </dev/null || status=$?
  [ "$status" = 0 ] && return 0
  tail -n 40 "$log" >&2
  say "'${*:1:4} ...' failed with exit status $status; all of its output: $log"
  return "$status"
}

# take_lock FILE WHAT: waits until no other gt holds FILE; held until drop_lock or the end of the script.
take_lock() {
  mkdir -p "$(dirname "$1")"
  exec {lock}>"$1"
  flock -n "$lock" && return 0
  say "waiting for another gt that is $2"
  flock "$lock"
}

drop_lock() { exec {lock}>&-; }

has_nvidia_driver() { [ -e /dev/nvidia0 ] || type -P nvidia-smi >/dev/null; }

# What besides the source files decides how a build comes out. The build's stamp holds it.
build_key() {
  local full=${GT_TORCH_FULL:-0}
  has_nvidia_driver && full=1
  key="$root|${GT_TORCH_DIR-}|$full"
}

# Whether build/PRESET is newer than every source file. The stamp carries the time its build began, and a folder counts
# as changed when a file in it was added, renamed or removed. Runs before every call of gt, so it must stay fast.
up_to_date() {
  local stamp=$root/build/$1/stamp stamped torch key
  [ -x "$root/build/$1/gt" ] && [ -e "$stamp" ] || return 1
  { read -r stamped && read -r torch; } <"$stamp" || return 1
  build_key
  [ "$stamped" = "$key" ] && [ -e "$torch/lib/libtorch_cpu.so" ] || return 1
  [ -z "$(find "$root/src" "$root/cmake" "$root/scripts" "$root/CMakeLists.txt" "$root/CMakePresets.json" \
    -cnewer "$stamp" -print -quit)" ]
}
