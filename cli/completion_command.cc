#include "cli/completion_command.h"

#include <cstdio>
#include <string>

#include "cli/commands.h"

namespace sublet::cli {
namespace {

std::string Verbs() {
  std::string text;
  for (const Command& command : Commands()) {
    if (!command.help.empty()) {
      text += (text.empty() ? "" : " ") + std::string(command.name);
    }
  }
  return text;
}

// Tenant names come from `sublet list`; a host that does not answer completes nothing.
void PrintBash(const std::string& verbs) {
  std::printf(
      "_sublet() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} verb=${COMP_WORDS[1]}\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    COMPREPLY=($(compgen -W \"%s\" -- \"$cur\"))\n"
      "    return\n"
      "  fi\n"
      "  case $verb in\n"
      "    connect|delete|describe|logs|pause|resume)\n"
      "      COMPREPLY=($(compgen -W \"$(sublet list -o json 2>/dev/null | sed -n "
      "'s/.*\"name\": \"\\(.*\\)\".*/\\1/p')\" -- \"$cur\")) ;;\n"
      "  esac\n"
      "}\n"
      "complete -F _sublet sublet\n",
      verbs.c_str());
}

void PrintZsh(const std::string& verbs) {
  std::printf(
      "#compdef sublet\n"
      "_sublet() {\n"
      "  if (( CURRENT == 2 )); then\n"
      "    compadd %s\n"
      "  else\n"
      "    case $words[2] in\n"
      "      connect|delete|describe|logs|pause|resume)\n"
      "        compadd $(sublet list -o json 2>/dev/null | sed -n "
      "'s/.*\"name\": \"\\(.*\\)\".*/\\1/p') ;;\n"
      "    esac\n"
      "  fi\n"
      "}\n"
      "compdef _sublet sublet\n",
      verbs.c_str());
}

void PrintFish() {
  for (const Command& command : Commands()) {
    if (!command.help.empty()) {
      std::printf("complete -c sublet -n __fish_use_subcommand -f -a %.*s -d '%.*s'\n",
                  static_cast<int>(command.name.size()), command.name.data(),
                  static_cast<int>(command.help.size()), command.help.data());
    }
  }
  std::printf(
      "complete -c sublet -n '__fish_seen_subcommand_from connect delete describe logs pause "
      "resume' -f -a \"(sublet list -o json 2>/dev/null | sed -n "
      "'s/.*\\\"name\\\": \\\"\\\\(.*\\\\)\\\".*/\\\\1/p')\"\n");
}

}  // namespace

int RunCompletion(int argc, char** argv) {
  const std::string shell = argc == 2 ? argv[1] : "";
  const std::string verbs = Verbs();
  if (shell == "bash") {
    PrintBash(verbs);
  } else if (shell == "zsh") {
    PrintZsh(verbs);
  } else if (shell == "fish") {
    PrintFish();
  } else {
    std::fprintf(stderr,
                 "usage: sublet completion bash|zsh|fish\n"
                 "  bash: source <(sublet completion bash)\n"
                 "  zsh:  source <(sublet completion zsh)\n"
                 "  fish: sublet completion fish | source\n");
    return shell == "--help" || shell == "-h" ? 0 : 2;
  }
  return 0;
}

}  // namespace sublet::cli
