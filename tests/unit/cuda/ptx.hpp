// SPDX-License-Identifier: Apache-2.0
// Reads PTX and finds what a kernel does before `griddepcontrol.wait`, the instruction by which a
// kernel that was launched early waits for the kernels before it.
#pragma once

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::cuda {

// One statement: "@%p1 ld.global.u32 %r1, [%rd2];" or a label.
struct PtxInstruction {
  std::string label{};     // of the next instruction; then the rest is empty
  bool guarded = false;    // by a predicate: it may not be executed
  std::string name{};      // "ld.global.u32"
  std::string operands{};  // "%r1, [%rd2]"

  std::string text() const { return name + (operands.empty() ? "" : " " + operands); }
  // "ld" of "ld.global.u32"
  std::string operation() const { return name.substr(0, name.find('.')); }
  bool has(std::string_view part) const { return name.find(part) != name.npos; }
};

struct PtxKernel {
  std::string name;
  std::vector<PtxInstruction> body;
};

class Ptx {
 public:
  explicit Ptx(std::string_view text) {
    const std::string code = without_comments(text);
    constexpr std::string_view kEntry = ".entry ";
    for (size_t at = code.find(kEntry); at != code.npos; at = code.find(kEntry, at)) {
      at += kEntry.size();
      const size_t end = code.find_first_of("( \n", at), begin = code.find('{', end);
      PtxKernel kernel{code.substr(at, end - at), {}};
      at = read_body(code, begin, kernel.body);
      kernels_.push_back(std::move(kernel));
    }
  }
  const std::vector<PtxKernel>& kernels() const { return kernels_; }

 private:
  static std::string without_comments(std::string_view text) {
    std::string code;
    for (size_t at = 0; at < text.size();) {
      const std::string_view rest = text.substr(at);
      const size_t end = rest.starts_with("//")   ? rest.find('\n')
                         : rest.starts_with("/*") ? rest.find("*/")
                                                  : 0;
      if (end == 0)
        code += text[at++];
      else
        at = end == rest.npos ? text.size() : at + end;
    }
    return code;
  }
  // The statements between the brace at `at` and its own end. Returns what is behind that.
  static size_t read_body(const std::string& code, size_t at, std::vector<PtxInstruction>& body) {
    std::string statement;
    for (int depth = 0; at < code.size(); ++at) {
      const char c = code[at];
      const bool outside = statement.empty();  // not among the operands of a statement
      if (outside && c == '{')
        ++depth;
      else if (outside && c == '}' && --depth == 0)
        return at + 1;
      else if (outside && (c == '}' || std::isspace(static_cast<unsigned char>(c))))
        continue;
      else if (c == ';')
        take(std::exchange(statement, {}), body);
      else if (c == ':' && is_label(statement))
        body.push_back({.label = std::exchange(statement, {})});
      else
        statement += std::isspace(static_cast<unsigned char>(c)) ? ' ' : c;
    }
    return at;
  }
  static bool is_label(const std::string& s) {
    return std::ranges::all_of(
        s, [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '$' || c == '%'; });
  }
  static void take(std::string s, std::vector<PtxInstruction>& body) {
    PtxInstruction i;
    if (s.starts_with('@')) {
      i.guarded = true;
      s.erase(0, std::min(s.find(' '), s.size()));
      s.erase(0, std::min(s.find_first_not_of(' '), s.size()));
    }
    if (s.empty() || s.starts_with('.')) return;  // a directive
    i.name = s.substr(0, s.find(' '));
    i.operands = s.substr(std::min(s.find_first_not_of(' ', i.name.size()), s.size()));
    while (i.operands.ends_with(' ')) i.operands.pop_back();
    body.push_back(std::move(i));
  }

  std::vector<PtxKernel> kernels_{};
};

// What a kernel does on its way to the wait.
class EarlyStart {
 public:
  explicit EarlyStart(const PtxKernel& kernel) : kernel_(kernel) {
    for (size_t k = 0; k < kernel.body.size(); ++k)
      if (!kernel.body[k].label.empty()) labels_[kernel.body[k].label] = k;
  }
  bool waits() const {
    return std::ranges::any_of(kernel_.body, [](const auto& i) { return i.name == kWait; });
  }
  // The first instruction that some path reaches before the wait and that ends the kernel or
  // touches global memory; empty = there is none. Reads by addresses made of nothing but the
  // parameters `ahead` (numbers from 0) are allowed.
  std::string fault(const std::set<int>& ahead = {}) const {
    const std::vector<bool> reached = before_wait();
    const std::map<std::string, std::set<int>> sources =
        ahead.empty() ? decltype(sources){} : origins();
    for (size_t k = 0; k < reached.size(); ++k) {
      const PtxInstruction& i = kernel_.body[k];
      if (!reached[k] || is_harmless(i)) continue;
      if (is_read(i) && !ahead.empty()) {
        std::set<int> from = origins_of(i.operands.substr(i.operands.find('[')), sources);
        if (!from.empty() && std::ranges::includes(ahead, from)) continue;
      }
      return i.text();
    }
    return reached.back() && !ends(kernel_.body.back()) ? "the end of the kernel" : "";
  }

 private:
  static constexpr std::string_view kWait = "griddepcontrol.wait";

  static bool ends(const PtxInstruction& i) {
    return i.name == "ret" || i.name == "exit" || i.name == "trap";
  }
  static bool is_read(const PtxInstruction& i) {
    // cp.async.ca.shared.global, and the copy engine's, which read by an address or a map
    return i.operation() == "ld" || i.name.starts_with("cp.async.c") ||
           (i.name.starts_with("cp.async.bulk") && i.has(".shared::cluster.global"));
  }
  static bool is_harmless(const PtxInstruction& i) {
    if (!i.label.empty()) return true;
    if (ends(i)) return false;
    const std::string what = i.operation();
    if (what == "call" || what == "brx") return false;  // nobody looks there
    if (what == "prefetch" || what == "prefetchu" || what == "applypriority" || what == "discard")
      return what != "discard";
    if (what == "cp")
      return i.has(".prefetch") || i.has("commit_group") || i.has("wait_group") ||
             i.has("wait_all");
    constexpr std::string_view kMemory[] = {"ld",  "ldu",  "st",   "atom",     "red",
                                            "tex", "suld", "sust", "multimem", "tensormap"};
    if (std::ranges::find(kMemory, what) == std::end(kMemory)) return true;
    for (const char* space : {".param", ".shared", ".local", ".const"})
      if (i.has(space)) return true;
    return false;  // global, or generic, which may be global
  }
  // Which instructions some path reaches without a wait.
  std::vector<bool> before_wait() const {
    std::vector<bool> reached(kernel_.body.size());
    std::vector<size_t> open = {0};
    while (!open.empty()) {
      const size_t k = open.back();
      open.pop_back();
      if (k >= reached.size() || reached[k]) continue;
      const PtxInstruction& i = kernel_.body[k];
      if (i.name == kWait && !i.guarded) continue;
      reached[k] = true;
      const bool jumps = i.operation() == "bra";
      if (jumps) open.push_back(labels_.at(i.operands));
      if ((!jumps && !ends(i)) || i.guarded) open.push_back(k + 1);
    }
    return reached;
  }

  // The registers and parameters that operands name.
  static std::vector<std::string> names_in(std::string_view operands) {
    const auto part = [](unsigned char c) {
      return std::isalnum(c) || c == '_' || c == '%' || c == '$';
    };
    std::vector<std::string> names;
    for (auto at = operands.begin(); at != operands.end();) {
      const auto end = std::find_if_not(at, operands.end(), part);
      if (end != at) names.emplace_back(at, end);
      at = end == operands.end() ? end : end + 1;
    }
    return names;
  }
  std::set<int> origins_of(std::string_view operands,
                           const std::map<std::string, std::set<int>>& known) const {
    const std::string parameter = kernel_.name + "_param_";
    std::set<int> all;
    for (const std::string& name : names_in(operands)) {
      if (name.starts_with(parameter)) all.insert(std::stoi(name.substr(parameter.size())));
      if (const auto found = known.find(name); found != known.end())
        all.insert(found->second.begin(), found->second.end());
    }
    return all;
  }
  // The parameters that each register's value was made of; what was read from memory is of none.
  std::map<std::string, std::set<int>> origins() const {
    std::map<std::string, std::set<int>> known;
    for (bool more = true; more;) {
      more = false;
      for (const PtxInstruction& i : kernel_.body) {
        if (i.name.empty() || (i.operation() == "ld" && !i.has(".param"))) continue;
        const bool several = i.operands.starts_with('{');
        const size_t comma = i.operands.find(',', several ? i.operands.find('}') : 0);
        if (comma == i.operands.npos) continue;
        const std::set<int> from = origins_of(i.operands.substr(comma), known);
        for (const std::string& to : names_in(i.operands.substr(0, comma))) {
          std::set<int>& of = known[to];
          const size_t before = of.size();
          of.insert(from.begin(), from.end());
          more |= of.size() != before;
        }
      }
    }
    return known;
  }

  const PtxKernel& kernel_;
  std::map<std::string, size_t> labels_{};
};

}  // namespace tenon::cuda
