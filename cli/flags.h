// Flags: the command line of one verb. A thin front on CLI11, so that only flags.cc pays for it.
// Threads: one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sublet::cli {

class Flags {
 public:
  // `name` is "sublet create"; `description` is shown by --help.
  Flags(std::string name, std::string description);
  ~Flags();

  // `names` as CLI11 writes them: "-n,--namespace". Targets keep their value when the flag is
  // absent.
  void Positional(std::string* target, const std::string& name, const std::string& help,
                  bool required = true);
  void Positionals(std::vector<std::string>* target, const std::string& name,
                   const std::string& help);
  void Text(std::string* target, const std::string& names, const std::string& help);
  void Texts(std::vector<std::string>* target, const std::string& names, const std::string& help);
  void Number(std::int64_t* target, const std::string& names, const std::string& help);
  // Accepts --flag, --flag=true and --flag=false.
  void Bool(bool* target, const std::string& names, const std::string& help);
  // Refuses other values, naming the allowed ones.
  void OneOf(std::string* target, const std::string& names, const std::vector<std::string>& allowed,
             const std::string& help);
  // "5s", "2m", "1h"; a bare number is seconds.
  void Duration(std::int64_t* seconds, const std::string& names, const std::string& help);

  // Reads argv. nullopt: go on. Otherwise the exit code to end with: 0 after --help, 2 after an
  // error (already printed).
  std::optional<int> Parse(int argc, char** argv);
  // What stood behind "--".
  const std::vector<std::string>& rest() const { return rest_; }
  bool has_rest() const { return has_rest_; }

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  std::vector<std::string> rest_;
  bool has_rest_ = false;
};

}  // namespace sublet::cli
