// SPDX-License-Identifier: Apache-2.0
// tenon completions: shell completions for bash, zsh and fish, generated from the table of
// commands.
#include <iostream>

#include "cli/command.hpp"

namespace tenon::cli {
namespace {

std::string joined(const std::vector<std::string_view>& words) {
  std::string text;
  for (const std::string_view w : words) text += (text.empty() ? "" : " ") + std::string(w);
  return text;
}

std::string first_word(std::string_view name) {
  return std::string(name.substr(0, name.find(' ')));
}

// The words that may follow `tenon`, each once.
std::string first_words() {
  std::string text;
  for (const Command& c : all_commands())
    if (const std::string word = first_word(c.name);
        (" " + text + " ").find(" " + word + " ") == std::string::npos)
      text += (text.empty() ? "" : " ") + word;
  return text + " help";
}

std::string second_words(std::string_view group) {
  std::string text;
  for (const Command& c : all_commands())
    if (c.name.starts_with(std::string(group) + " "))
      text += (text.empty() ? "" : " ") + std::string(c.name.substr(group.size() + 1));
  return text;
}

// The first words that several commands share, each once.
std::vector<std::string> groups() {
  std::vector<std::string> out;
  for (const Command& c : all_commands())
    if (const size_t blank = c.name.find(' '); blank != c.name.npos)
      if (const std::string word(c.name.substr(0, blank)); out.empty() || out.back() != word)
        out.push_back(word);
  return out;
}

std::string option_names(const Command& c) {
  std::string text;
  for (const Option& o : options_of(c)) text += (text.empty() ? "" : " ") + std::string(o.name);
  return text;
}

// Escapes a text for single quotes of bash and zsh.
std::string in_quotes(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out;
}

const char* bash_offer(Completes what) {
  switch (what) {
    case Completes::file:
      return "compgen -f -- \"$word\"";
    case Completes::folder:
      return "compgen -d -- \"$word\"";
    default:
      return nullptr;
  }
}

// One function: finds the command, then completes by the previous word.
std::string bash() {
  std::string text =
      "# bash completion for tenon\n"
      "_tenon() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
      "  local command=${COMP_WORDS[1]} offered=''\n"
      "  # bash splits --name=value into three words\n"
      "  if [ \"$word\" = '=' ]; then word=''\n"
      "  elif [ \"$before\" = '=' ]; then before=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
      "  COMPREPLY=()\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    mapfile -t COMPREPLY < <(compgen -W '" +
      first_words() +
      " --help --version' -- \"$word\")\n"
      "    return\n"
      "  fi\n"
      "  [ \"$command\" = help ] && {\n"
      "    [ \"$COMP_CWORD\" -eq 2 ] && offered='" +
      first_words() +
      "'\n"
      "    case $before in\n";
  for (const std::string& group : groups())
    text += "      " + group + ") offered='" + second_words(group) + "' ;;\n";
  text +=
      "    esac\n"
      "    mapfile -t COMPREPLY < <(compgen -W \"$offered\" -- \"$word\")\n"
      "    return\n"
      "  }\n";
  for (const std::string& group : groups())
    text += "  if [ \"$command\" = " + group +
            " ]; then\n"
            "    if [ \"$COMP_CWORD\" -eq 2 ]; then\n"
            "      mapfile -t COMPREPLY < <(compgen -W '" +
            second_words(group) +
            " --help' -- \"$word\")\n"
            "      return\n"
            "    fi\n"
            "    command=\"" +
            group +
            " ${COMP_WORDS[2]}\"\n"
            "  fi\n";
  text += "  case \"$command $before\" in\n";
  for (const Command& c : all_commands())
    for (const Option& o : options_of(c)) {
      if (o.value.empty()) continue;
      const std::string pattern = "    '" + std::string(c.name) + " " + std::string(o.name) + "') ";
      if (!o.choices.empty())
        text += pattern + "mapfile -t COMPREPLY < <(compgen -W '" + joined(o.choices) +
                "' -- \"$word\"); return ;;\n";
      else if (const char* offer = bash_offer(o.completes))
        text +=
            pattern + "compopt -o filenames; mapfile -t COMPREPLY < <(" + offer + "); return ;;\n";
      else
        text += pattern + "return ;;\n";
    }
  text += "  esac\n  case \"$command\" in\n";
  for (const Command& c : all_commands()) {
    text += "    '" + std::string(c.name) + "') offered='" + option_names(c) +
            (c.choices.empty() ? "" : " " + joined(c.choices)) + "'";
    if (const char* offer = bash_offer(c.completes))
      text +=
          std::string("; [[ $word == -* ]] || { compopt -o filenames; mapfile -t COMPREPLY < <(") +
          offer + "); return; }";
    text += " ;;\n";
  }
  return text +
         "  esac\n"
         "  # texts of --text go on until the next option\n"
         "  if [[ $word != -* && $command == 'lm train' ]]; then\n"
         "    compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- \"$word\"); return\n"
         "  fi\n"
         "  mapfile -t COMPREPLY < <(compgen -W \"$offered\" -- \"$word\")\n"
         "}\n"
         "complete -F _tenon tenon\n";
}

// Escapes a text for an option's brackets in _arguments.
std::string zsh_help(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return in_quotes(out);
}

std::string zsh_action(const std::vector<std::string_view>& choices, Completes what) {
  if (!choices.empty()) return "(" + joined(choices) + ")";
  return what == Completes::file ? "_files" : what == Completes::folder ? "_files -/" : "";
}

std::string zsh_commands(std::string_view group) {
  std::string text;
  for (const Command& c : all_commands()) {
    if (!group.empty() && !c.name.starts_with(std::string(group) + " ")) continue;
    if (group.empty() && c.name.find(' ') != c.name.npos) continue;
    const std::string_view name = group.empty() ? c.name : c.name.substr(group.size() + 1);
    text += " '" + std::string(name) + ":" + zsh_help(c.summary) + "'";
  }
  return text;
}

std::string zsh_groups() {
  std::string text;
  for (const std::string& group : groups()) text += " '" + group + ":language models'";
  return text;
}

std::string zsh() {
  std::string text =
      "#compdef tenon\n"
      "# zsh completion for tenon\n"
      "_tenon() {\n"
      "  local -a commands\n"
      "  if (( CURRENT == 2 )); then\n"
      "    commands=(" +
      zsh_commands("") + zsh_groups() +
      " 'help:help of a command')\n"
      "    _describe command commands\n"
      "    return\n"
      "  fi\n"
      "  local command=$words[2]\n"
      "  if [[ $command == help ]]; then\n"
      "    if (( CURRENT == 3 )); then compadd " +
      first_words() + "\n";
  for (const std::string& group : groups())
    text += "    elif [[ $words[3] == " + group + " ]]; then compadd " + second_words(group) + "\n";
  text +=
      "    fi\n"
      "    return\n"
      "  fi\n";
  for (const std::string& group : groups())
    text += "  if [[ $command == " + group +
            " ]]; then\n"
            "    if (( CURRENT == 3 )); then\n"
            "      commands=(" +
            zsh_commands(group) +
            ")\n"
            "      _describe command commands\n"
            "      return\n"
            "    fi\n"
            "    command=\"" +
            group +
            " $words[3]\"\n"
            "    shift words; (( CURRENT-- ))\n"
            "  fi\n";
  text +=
      "  shift words; (( CURRENT-- ))\n"
      "  case $command in\n";
  for (const Command& c : all_commands()) {
    text += "    '" + std::string(c.name) + "')\n      _arguments";
    for (const Option& o : options_of(c)) {
      const std::string name(o.name);
      text += " \\\n        '" + std::string(o.repeats ? "*" : "") + name +
              (o.value.empty() ? "" : "=") + "[" + zsh_help(o.help) + "]";
      if (!o.value.empty())
        text += std::string(o.greedy ? ":*-*" : "") + ":" + zsh_help(o.value) + ":" +
                zsh_action(o.choices, o.completes);
      text += "'";
    }
    if (c.words > 0) text += " \\\n        '1:argument:" + zsh_action(c.choices, c.completes) + "'";
    text += "\n      ;;\n";
  }
  return text + "  esac\n}\n" +
         "# loaded by compinit, or sourced\n"
         "if [[ $funcstack[1] == _tenon ]]; then _tenon \"$@\"; else compdef _tenon tenon; fi\n";
}

// Escapes a text for single quotes of fish.
std::string fish_quoted(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string fish() {
  std::string text =
      "# fish completion for tenon\n"
      "function __tenon_is\n"
      "  set -l words (commandline -opc)\n"
      "  test \"$words[2..-1]\" = \"$argv\"; and return 0\n"
      "  string match -q -- \"$argv *\" \"$words[2..-1]\"\n"
      "end\n"
      "function __tenon_after\n"
      "  set -l words (commandline -opc)\n"
      "  test \"$words[2..-1]\" = \"$argv\"\n"
      "end\n"
      "complete -c tenon -f\n"
      "complete -c tenon -n '__tenon_after' -s h -l help -d 'print help'\n"
      "complete -c tenon -n '__tenon_after' -s V -l version -d 'print versions'\n"
      "complete -c tenon -n '__tenon_after' -a help -d 'help of a command'\n"
      "complete -c tenon -n '__tenon_after help' -a '" +
      first_words() + "'\n";
  for (const std::string& group : groups())
    text += "complete -c tenon -n '__tenon_after' -a " + group + " -d 'language models'\n";
  for (const Command& c : all_commands()) {
    const size_t blank = c.name.find(' ');
    const std::string group =
        blank == c.name.npos ? "" : " " + std::string(c.name.substr(0, blank));
    const std::string word(blank == c.name.npos ? c.name : c.name.substr(blank + 1));
    const std::string summary = fish_quoted(c.summary);
    text +=
        "complete -c tenon -n '__tenon_after" + group + "' -a " + word + " -d '" + summary + "'\n";
    const std::string when = "complete -c tenon -n '__tenon_is " + std::string(c.name) + "'";
    for (const Option& o : options_of(c)) {
      text += when + (o.name == "--help" ? " -s h" : "") + " -l " + std::string(o.name.substr(2)) +
              " -d '" + fish_quoted(o.help) + "'";
      if (!o.choices.empty())
        text += " -x -a '" + joined(o.choices) + "'";
      else if (o.completes == Completes::file)
        text += " -r -F";
      else if (o.completes == Completes::folder)
        text += " -x -a '(__fish_complete_directories)'";
      else if (!o.value.empty())
        text += " -x";
      text += "\n";
    }
    if (!c.choices.empty()) text += when + " -a '" + joined(c.choices) + "'\n";
    if (c.completes == Completes::file) text += when + " -F\n";
  }
  return text;
}

int completions(const Args& args) {
  if (args.words().empty()) throw UsageError("which shell is missing: bash, zsh or fish");
  const std::string& shell = args.words()[0];
  if (shell == "bash")
    std::cout << bash();
  else if (shell == "zsh")
    std::cout << zsh();
  else if (shell == "fish")
    std::cout << fish();
  else
    throw UsageError("shell '" + shell + "': expected bash, zsh or fish" +
                     did_you_mean(shell, {"bash", "zsh", "fish"}));
  return 0;
}

}  // namespace

Command completions_command() {
  return {.name = "completions",
          .summary = "print shell completions for bash, zsh or fish",
          .usage = "bash | zsh | fish",
          .examples =
              "source <(tenon completions bash)\n"
              "tenon completions zsh > \"${fpath[1]}/_tenon\"\n"
              "tenon completions fish > ~/.config/fish/completions/tenon.fish\n",
          .words = 1,
          .choices = {"bash", "zsh", "fish"},
          .loads_plugins = false,
          .opens_device = false,
          .run = completions};
}

}  // namespace tenon::cli
