# Finds out which Debian packages are missing and installs them where that is possible.

# Prints what is missing for the given purposes. Looks for the programs and headers themselves, so that other
# distributions and hand-made installations work too.
missing_packages() {
  local purpose
  for purpose in "$@"; do
    case $purpose in
      build)
        want_program g++ g++
        want_program cmake cmake
        want_program ninja ninja-build
        want_headers fmt/format.h=libfmt-dev spdlog/spdlog.h=libspdlog-dev \
          nlohmann/json.hpp=nlohmann-json3-dev pcre2.h=libpcre2-dev utf8proc.h=libutf8proc-dev \
          zlib.h=zlib1g-dev zstd.h=libzstd-dev
        ;;
      torch) # to find or install libtorch
        [ -z "${GT_TORCH_DIR-}" ] || continue
        want_program python3 python3
        python3 -c 'import pip' 2>/dev/null || python3 -c 'import ensurepip' 2>/dev/null || echo python3-venv
        ;;
      speed) want_program ccache ccache ;;
      test) want_headers gtest/gtest.h=libgtest-dev ;;
      bench) want_headers benchmark/benchmark.h=libbenchmark-dev ;;
      format) want_program clang-format clang-format ;;
      tidy) want_program clang-tidy clang-tidy ;;
      fuzz)
        want_program clang++ clang
        [ -e "$(clang++ -print-file-name="libclang_rt.fuzzer-$(uname -m).a" 2>/dev/null)" ] || echo libclang-rt-dev
        ;;
    esac
  done
}

want_program() { type -P "$1" >/dev/null || echo "$2"; }

# want_headers HEADER=PACKAGE...: asks the compiler; without one, everything counts as missing.
want_headers() {
  local pair
  for pair in "$@"; do
    printf '#if !__has_include(<%s>)\n%s\n#endif\n' "${pair%=*}" "${pair#*=}"
  done | g++ -x c++ -E -P - 2>/dev/null || printf '%s\n' "${@#*=}"
}

# need_packages "PURPOSE..." ["PURPOSE..."]: installs what is missing for these purposes. Ends with the command to give
# when something for the first is missing and cannot be installed; goes on without what the second asks for.
need_packages() {
  local required optional=${2-} missing given_up=$root/build/packages_given_up
  # shellcheck disable=SC2086  # one word per purpose
  required=$(missing_packages $1 | sort -u | xargs) missing=$(missing_packages $1 $optional | sort -u | xargs)
  [ -n "$missing" ] || return 0
  # What cannot be installed is tried only once per checkout.
  if [ -z "$required" ] && [ "$(cat "$given_up" 2>/dev/null)" = "$missing" ]; then return 0; fi
  install_packages "$missing" && return 0
  if [ -n "$required" ]; then
    say "these Debian packages are missing and could not be installed from here: $missing"
    die "run this, then try again: sudo apt-get install -y $missing"
  fi
  say "going on without these packages: $missing"
  mkdir -p "$root/build"
  printf '%s\n' "$missing" >"$given_up"
}

install_packages() {
  local as_root=()
  type -P apt-get >/dev/null || return 1
  if [ "$(id -u)" != 0 ]; then
    sudo -n true 2>/dev/null || return 1
    as_root=(sudo -n)
  fi
  say "installing packages${as_root:+ with sudo} (about a minute): $1"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o Acquire::http::Timeout=20 -q)
  step apt_update "${apt[@]}" update || return 1
  # shellcheck disable=SC2086  # one word per package
  step apt_install "${apt[@]}" install -y --no-install-recommends $1
}
