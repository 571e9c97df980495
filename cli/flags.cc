#include "cli/flags.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>

#include "cli/output.h"

namespace sublet::cli {

struct Flags::Impl {
  CLI::App app;
};

Flags::Flags(std::string name, std::string description) : impl_(std::make_unique<Impl>()) {
  impl_->app.name(std::move(name));
  impl_->app.description(std::move(description));
}

Flags::~Flags() = default;

void Flags::Positional(std::string* target, const std::string& name, const std::string& help,
                       bool required) {
  auto* option = impl_->app.add_option(name, *target, help);
  if (required) {
    option->required();
  }
}

void Flags::Positionals(std::vector<std::string>* target, const std::string& name,
                        const std::string& help) {
  impl_->app.add_option(name, *target, help);
}

void Flags::Text(std::string* target, const std::string& names, const std::string& help) {
  impl_->app.add_option(names, *target, help);
}

void Flags::Texts(std::vector<std::string>* target, const std::string& names,
                  const std::string& help) {
  impl_->app.add_option(names, *target, help)->allow_extra_args(false);
}

void Flags::Number(std::int64_t* target, const std::string& names, const std::string& help) {
  impl_->app.add_option(names, *target, help);
}

void Flags::Bool(bool* target, const std::string& names, const std::string& help) {
  impl_->app.add_flag(names, *target, help);
}

void Flags::OneOf(std::string* target, const std::string& names,
                  const std::vector<std::string>& allowed, const std::string& help) {
  impl_->app.add_option(names, *target, help)->check(CLI::IsMember(allowed));
}

void Flags::Duration(std::int64_t* seconds, const std::string& names, const std::string& help) {
  impl_->app.add_option_function<std::string>(
      names,
      [seconds](const std::string& text) {
        std::size_t digits = 0;
        while (digits < text.size() && std::isdigit(static_cast<unsigned char>(text[digits]))) {
          ++digits;
        }
        const std::string unit = text.substr(digits);
        const std::int64_t factor = unit.empty() || unit == "s" ? 1
                                    : unit == "m"               ? 60
                                    : unit == "h"               ? 3600
                                                                : 0;
        if (digits == 0 || digits > 9 || factor == 0) {
          throw CLI::ValidationError("\"" + text + "\" is no duration; write 30s, 5m or 1h");
        }
        *seconds = std::stoll(text.substr(0, digits)) * factor;
      },
      help);
}

std::optional<int> Flags::Parse(int argc, char** argv) {
  SetRunningCommand(impl_->app.get_name());
  int own = argc;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--") == 0) {
      own = i;
      has_rest_ = true;
      rest_.assign(argv + i + 1, argv + argc);
      break;
    }
  }
  try {
    impl_->app.parse(own, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(impl_->app.help().c_str(), stdout);
    return 0;
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "%s: %s\n%s --help lists the flags\n", impl_->app.get_name().c_str(),
                 error.what(), impl_->app.get_name().c_str());
    return 2;
  }
  return std::nullopt;
}

}  // namespace sublet::cli
