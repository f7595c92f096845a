# Finds libtorch 2.11, or installs it into the user's cache, where all checkouts share it.

torch_release=2.11.0
# All that libtorch's CPU half needs of CUDA, and the compiler of generated kernels; with a driver, pip brings the whole
# list instead.
torch_lean_extras=(nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85 nvidia-cuda-nvrtc==13.0.88)
# Headers that the CUDA runtime's own include: without them gt is built without CUDA graphs.
torch_headers=(nvidia-cuda-crt==13.0.88)

# Sets torch_dir. Order: $GT_TORCH_DIR, the torch of the active python3, the cache. Fails when there is none yet: torch_dir
# is then where install_torch will put it.
find_torch() {
  if [ -n "${GT_TORCH_DIR-}" ]; then
    torch_dir=$(readlink -f -- "$GT_TORCH_DIR") || torch_dir=$GT_TORCH_DIR
    is_right_torch "$torch_dir" ||
      die "GT_TORCH_DIR=$GT_TORCH_DIR is not libtorch 2.11: it must be the folder of the Python package torch" \
        "$torch_release, with include/ATen and version.py in it; unset it to let gt find or install libtorch"
    return
  fi
  torch_dir=$(python3 -c 'import importlib.util as u; print(*u.find_spec("torch").submodule_search_locations)' 2>/dev/null) &&
    is_right_torch "$torch_dir" && return
  find_cached_torch
}

is_right_torch() {
  [ -e "$1/include/ATen/ATen.h" ] && [ -e "$1/lib/libtorch_cpu.so" ] &&
    grep -qE "^__version__ = '2\.11\." "$1/version.py" 2>/dev/null
}

wants_full_torch() { [ "${GT_TORCH_FULL:-0}" = 1 ] || has_nvidia_driver; }

find_cached_torch() {
  local place
  place=$cache/torch-$torch_release-$(python3 -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
  # The full installation also serves where the lean one would do.
  for torch_dir in "$place/torch" "$place-full/torch"; do
    wants_full_torch && [ "$torch_dir" = "$place/torch" ] && continue
    is_right_torch "$torch_dir" && return
  done
  if wants_full_torch; then torch_dir=$place-full/torch; else torch_dir=$place/torch; fi
  return 1
}

# Installs beside the final place and renames at the end: a broken download never looks like an installation.
install_torch() {
  take_lock "$cache/torch.lock" "installing libtorch"
  find_cached_torch && return # another gt has just installed it
  rm -rf "$cache"/partial.*
  local partial pip deps=(--no-deps "${torch_lean_extras[@]}") size='1.3 GB, about 1 minute'
  if wants_full_torch; then
    deps=()
    size='4.7 GB, about 3 minutes'
  fi
  partial=$(mktemp -d "$cache/partial.XXXXXX")
  if python3 -c 'import pip' 2>/dev/null; then
    pip=(python3 -m pip)
  else
    step venv python3 -m venv "$partial/venv" || exit 1
    pip=("$partial/venv/bin/python" -m pip)
  fi
  say "installing libtorch $torch_release into $cache ($size, once per user)"
  mkdir "$partial/tmp"
  TMPDIR=$partial/tmp step pip "${pip[@]}" install --no-cache-dir --no-compile --progress-bar off \
    --target "$partial/site" "torch==$torch_release" "${torch_headers[@]}" "${deps[@]}" || exit 1
  is_right_torch "$partial/site/torch" || die "pip installed something else than torch $torch_release: $partial/site"
  if ldd "$partial/site/torch/lib/libtorch_cpu.so" | grep 'not found' >&2; then
    die "libtorch does not find the libraries named above"
  fi
  mv -T "$partial/site" "${torch_dir%/torch}"
  rm -rf "$partial"
}
