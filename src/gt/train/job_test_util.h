// Running whole jobs and comparing what they computed bit for bit, for tests.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "gt/job/config.h"
#include "gt/train/trainer.h"

namespace gt {

// Writes rows of length + 1 tokens as an .npy file. `next`: the token after another one; it is given -1
// for the first of a row.
inline void WriteTokenRows(const std::filesystem::path& path, int64_t rows, int64_t length,
                           const std::function<int32_t(int32_t)>& next) {
  std::string header = fmt::format(
      "{{'descr': '<i4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, length + 1);
  header.resize((header.size() + 10 + 1 + 63) / 64 * 64 - 10 - 1, ' ');
  header += '\n';
  std::ofstream file(path, std::ios::binary);
  file << "\x93NUMPY" << '\1' << '\0';
  auto size = static_cast<uint16_t>(header.size());
  file.write(reinterpret_cast<const char*>(&size), sizeof size);
  file << header;
  for (int64_t row = 0; row < rows; ++row) {
    int32_t token = -1;
    for (int64_t i = 0; i <= length; ++i) {
      token = next(token);
      file.write(reinterpret_cast<const char*>(&token), sizeof token);
    }
  }
}

// Tokens below 256 that mostly follow one another, so that there is something to learn.
inline void WriteLearnableRows(const std::filesystem::path& path, int64_t rows, int64_t length) {
  std::mt19937 random(7);
  WriteTokenRows(path, rows, length, [&random](int32_t token) {
    if (token < 0 || random() % 5 == 0) return static_cast<int32_t>(random() % 256);
    return (token * 7 + 3) % 256;
  });
}

struct JobOutcome {
  std::vector<double> losses, norms;
  std::vector<std::string> hashes;   // three for every step, where the job writes them
  std::vector<std::string> experts;  // for every step: hashes of what routers chose, likewise
  uint64_t hash = 0;                 // of the state at the end
  friend bool operator==(const JobOutcome&, const JobOutcome&) = default;
};

inline JobOutcome ReadOutcome(const std::string& metrics, uint64_t hash) {
  JobOutcome outcome;
  outcome.hash = hash;
  std::ifstream file(metrics);
  for (std::string line; std::getline(file, line);) {
    nlohmann::json step = nlohmann::json::parse(line);
    outcome.losses.push_back(step["loss"]);
    outcome.norms.push_back(step["grad_norm"]);
    for (const char* hash_of : {"gradient_hash", "parameter_hash", "buffer_hash"}) {
      if (step.contains(hash_of)) outcome.hashes.push_back(step[hash_of]);
    }
    if (step.contains("expert_hash")) outcome.experts.push_back(step["expert_hash"]);
  }
  return outcome;
}

inline JobOutcome RunJob(const Config& config) {
  TrainSummary summary = Train(config);
  return ReadOutcome(summary.metrics_path, summary.state_hash);
}

// The real program, one process for each of config.ranks. It is looked for next to the tests, which may
// run on another machine than the one they were built on.
inline JobOutcome RunJobInProcesses(const Config& config, const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  Config job = config;
  job.ranks = 0;
  fs::path file = folder / "job.toml", log = folder / "job.log";
  fs::path program = fs::read_symlink("/proc/self/exe").parent_path() / "gt";
  std::ofstream(file) << ToToml(job);
  std::string command = fmt::format("{} launch -n {} -- train --config {} > {} 2>&1",
                                    program.string(), config.ranks, file.string(), log.string());
  const int status = std::system(command.c_str());
  std::ifstream text(log);
  std::string all{std::istreambuf_iterator<char>(text), std::istreambuf_iterator<char>()};
  EXPECT_EQ(status, 0) << all;
  size_t place = all.find("state hash ");
  EXPECT_NE(place, std::string::npos) << all;
  uint64_t hash = place == std::string::npos ? 0 : std::stoull(all.substr(place + 11), nullptr, 16);
  return ReadOutcome(job.dump_folder + "/metrics.jsonl", hash);
}

// The flags that make the job, for messages: what differs from the defaults.
inline std::string FlagsOf(const Config& config) {
  const Config defaults;
  std::vector<std::string> usual;
  ForEachOption(defaults, [&](const Option& option) { usual.push_back(option.TomlText()); });
  std::string flags;
  size_t i = 0;
  ForEachOption(config, [&](const Option& option) {
    std::string value = option.TomlText();
    if (value != usual[i++]) flags += fmt::format(" --{}={}", option.path(), value);
  });
  return flags;
}

// Where two outcomes part: the first step, and what differs there. Empty if they are equal.
inline std::string Difference(const JobOutcome& expected, const JobOutcome& actual) {
  if (expected == actual) return "";
  if (expected.losses.size() != actual.losses.size()) {
    return fmt::format("{} steps instead of {}", actual.losses.size(), expected.losses.size());
  }
  if (expected.hashes.size() != actual.hashes.size()) {
    return fmt::format("{} hashes instead of {}", actual.hashes.size(), expected.hashes.size());
  }
  for (size_t i = 0; i < expected.losses.size(); ++i) {
    std::string text;
    auto compare = [&text](const char* what, const auto& a, const auto& b) {
      if (a != b) text += fmt::format(" {} {} instead of {};", what, b, a);
    };
    compare("loss", expected.losses[i], actual.losses[i]);
    compare("gradient norm", expected.norms[i], actual.norms[i]);
    const char* names[] = {"gradients", "parameters", "buffers"};
    for (size_t k = 0; k < 3 && 3 * i + k < expected.hashes.size(); ++k) {
      compare(names[k], expected.hashes[3 * i + k], actual.hashes[3 * i + k]);
    }
    if (!text.empty()) return fmt::format("step {} of {}:{}", i + 1, expected.losses.size(), text);
  }
  return fmt::format("state hash {:016x} instead of {:016x}", actual.hash, expected.hash);
}

}  // namespace gt
