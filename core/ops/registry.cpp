// SPDX-License-Identifier: Apache-2.0
// Checks the descriptions of ops, and keeps them for the life of the process.
#include "ops/registry.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <tuple>
#include <vector>

#include "base/c_struct.hpp"
#include "ops/own_rule.hpp"

namespace tenon::core {
namespace {

static_assert(TENON_PART_OPERAND == static_cast<int>(OpPart::Kind::operand) &&
              TENON_PART_OPTIONAL_OPERAND == static_cast<int>(OpPart::Kind::optional_operand) &&
              TENON_PART_OPERAND_LIST == static_cast<int>(OpPart::Kind::operand_list) &&
              TENON_PART_OPTIONAL_LIST == static_cast<int>(OpPart::Kind::optional_list) &&
              TENON_PART_ATTRIBUTE == static_cast<int>(OpPart::Kind::attr) &&
              TENON_PART_OUTPUT == static_cast<int>(OpPart::Kind::output) &&
              TENON_PART_OPTIONAL_OUTPUT == static_cast<int>(OpPart::Kind::optional_output) &&
              TENON_PART_OUTPUT_LIST == static_cast<int>(OpPart::Kind::output_list));
static_assert(TENON_ARG_I64 == TENON_ATTR_I64 && TENON_ARG_F64 == TENON_ATTR_F64 &&
              TENON_ARG_BOOL == TENON_ATTR_BOOL && TENON_ARG_STR == TENON_ATTR_STR &&
              TENON_ARG_INTS == TENON_ATTR_INTS && TENON_ARG_FLOATS == TENON_ATTR_FLOATS &&
              TENON_ARG_DTYPE == TENON_ATTR_DTYPE && TENON_ARG_FUNCTION == TENON_ATTR_FUNCTION);

constexpr uint32_t kMostParts = 256;
constexpr size_t kLongestName = 64;
constexpr uint32_t kKnownFlags = TENON_OP_COMMUTATIVE | TENON_OP_NOT_DIFFERENTIABLE;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_op_name(std::string_view text) {
  return !text.empty() && text.size() <= kLongestName && std::ranges::all_of(text, [](char c) {
    return is_letter(c) || is_digit(c) || c == '-' || c == '.';
  });
}
bool is_identifier(std::string_view text) {
  return !text.empty() && text.size() <= kLongestName && is_letter(text[0]) &&
         std::ranges::all_of(text, [](char c) { return is_letter(c) || is_digit(c); });
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    if (end) words.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

// Reads a description into a record.
class Reader {
 public:
  explicit Reader(const tenon_op_desc& given) : desc_(taken(&given, "op")) {}

  std::unique_ptr<RegisteredOp> read(std::string_view origin) {
    auto op = std::make_unique<RegisteredOp>();
    op_ = op.get();
    op_->origin = origin;
    op_->domain = op_name(desc_.domain, "domain");
    const std::string_view name = op_name(desc_.name, "name");
    op_->label = keep(cat(op_->domain, ":", name));
    if (op_->domain == "tenon") bad("expected a domain other than tenon");
    if (desc_.version == 0) bad("version: expected 1 or more, got 0");
    if (desc_.flags & ~kKnownFlags) bad("flags: ", desc_.flags, " are not known");
    if (!desc_.shape) bad("its shape rule is NULL");
    if ((desc_.flags & TENON_OP_NOT_DIFFERENTIABLE) && desc_.gradient)
      bad("is not differentiable, and has a gradient");
    std::string_view family = desc_.family.size ? op_name(desc_.family, "family") : op_->domain;
    read_parts();
    op_->own_schema = {name,
                       family,
                       desc_.version,
                       OpLevel::core,
                       op_->parts.data(),
                       static_cast<uint32_t>(op_->parts.size())};
    op_->schema = &op_->own_schema;
    op_->words = op_->own_words;
    if (desc_.flags & TENON_OP_COMMUTATIVE) op_->traits |= kCommutative;
    if (desc_.flags & TENON_OP_NOT_DIFFERENTIABLE) op_->traits |= kNotDifferentiable;
    op_->rules = desc_;
    use_rules(*op_);
    return op;
  }

 private:
  template <class... Parts>
  [[noreturn]] void bad(const Parts&... parts) const {
    fail(Code::invalid_argument, "op ", op_->label.empty() ? std::string_view("?") : op_->label,
         ": ", parts...);
  }
  std::string_view keep(std::string text) { return op_->texts.emplace_back(std::move(text)); }
  std::string_view op_name(tenon_str given, std::string_view what) {
    const std::string_view text = view(given);
    if (!is_op_name(text))
      bad(what, ": expected up to ", kLongestName, " of a-z, A-Z, 0-9, '_', '-' and '.', got '",
          text.substr(0, 2 * kLongestName), "'");
    return keep(std::string(text));
  }

  void read_parts() {
    if (desc_.part_count == 0) bad("has no parts; expected an output at least");
    if (desc_.part_count > kMostParts)
      bad("has ", desc_.part_count, " parts, the limit is ", kMostParts);
    bool list_ended = false;
    size_t outputs = 0;
    for (uint32_t i = 0; i < desc_.part_count; ++i) {
      const tenon_op_part given =
          element(desc_.parts, desc_.part_stride, TENON_OP_PART_SIZE_V1, i, "parts");
      if (given.kind < TENON_PART_OPERAND || given.kind > TENON_PART_OUTPUT_LIST)
        bad("part ", i, ": kind ", given.kind, " is unknown");
      OpPart part{.kind = static_cast<OpPart::Kind>(given.kind)};
      const std::string_view name = view(given.name);
      if (!is_identifier(name))
        bad("part ", i, ": expected a name of up to ", kLongestName,
            " letters, digits and '_', got '", name.substr(0, 2 * kLongestName), "'");
      part.name = keep(std::string(name));
      const bool output = part.kind >= OpPart::Kind::output;
      for (const OpPart& other : op_->parts)
        if (other.name == name && (other.kind >= OpPart::Kind::output) == output)
          bad("two parts are named ", name);
      if (output && list_ended) bad("output ", name, " stands behind a list of outputs");
      list_ended |= part.kind == OpPart::Kind::output_list;
      outputs += output;
      if (part.kind == OpPart::Kind::attr) read_attribute(given, part);
      op_->parts.push_back(part);
    }
    if (outputs == 0) bad("has no output");
  }

  void read_attribute(const tenon_op_part& given, OpPart& part) {
    const auto wrong = [&](const auto&... parts) { bad("attribute ", part.name, ": ", parts...); };
    if (given.type < TENON_ARG_I64 || given.type > TENON_ARG_FUNCTION)
      wrong("type ", given.type, " is unknown");
    if (given.type == TENON_ARG_FUNCTION)
      fail(Code::unsupported, "op ", op_->label, ": attribute ", part.name,
           ": a registered op cannot have a function");
    part.attr_type = given.type;
    part.default_int = given.default_int;
    part.default_float = given.default_float;
    part.default_str = keep(std::string(view(given.default_str)));
    if (given.type == TENON_ARG_BOOL && given.default_int != 0 && given.default_int != 1)
      wrong("expected the default 0 or 1, got ", given.default_int);
    if (given.type == TENON_ARG_DTYPE &&
        (given.default_int < 0 || given.default_int >= TENON_DTYPE_COUNT))
      wrong("the default ", given.default_int, " is no dtype");
    const std::vector<std::string_view> words = words_of(view(given.values));
    if (words.empty()) return;
    if (given.type != TENON_ARG_STR && given.type != TENON_ARG_DTYPE)
      wrong("only a string or a dtype can have a list of values");
    std::string accepted;
    for (const std::string_view w : words) {
      if (given.type == TENON_ARG_DTYPE && !dtype_from_name(w)) wrong("'", w, "' is no dtype");
      accepted += cat(accepted.empty() ? "" : " ", w);
    }
    if (given.type == TENON_ARG_STR && !part.required() &&
        std::ranges::find(words, part.default_str) == words.end())
      wrong("the default '", part.default_str, "' is not among its values ", accepted);
    op_->own_words.push_back({part.name, keep(std::move(accepted))});
  }

  const tenon_op_desc desc_;
  RegisteredOp* op_ = nullptr;
};

// What the second description says otherwise than the first; empty if nothing.
std::string difference(const RegisteredOp& a, const RegisteredOp& b) {
  const auto differ = [](std::string_view what, const auto& first, const auto& second) {
    return first == second ? std::string() : cat(what, " ", first, " and ", second);
  };
  if (std::string d = differ("number of parts", a.parts.size(), b.parts.size()); !d.empty())
    return d;
  for (size_t i = 0; i < a.parts.size(); ++i) {
    const OpPart &p = a.parts[i], &q = b.parts[i];
    const bool same_float = p.default_float == q.default_float ||
                            (is_unset(p.default_float) && is_unset(q.default_float));
    if (p.kind != q.kind || p.name != q.name || p.attr_type != q.attr_type ||
        p.default_int != q.default_int || !same_float || p.default_str != q.default_str)
      return cat("part ", i, ", ", p.name, p.name == q.name ? "" : cat(" and ", q.name));
  }
  for (size_t i = 0; i < std::max(a.own_words.size(), b.own_words.size()); ++i) {
    const Words p = i < a.own_words.size() ? a.own_words[i] : Words{};
    const Words q = i < b.own_words.size() ? b.own_words[i] : Words{};
    if (p.attr != q.attr || p.accepted != q.accepted)
      return cat("the values of ", p.attr.empty() ? q.attr : p.attr);
  }
  if (a.rules.flags != b.rules.flags) return "flags";
  const auto present = [](const tenon_op_desc& d) {
    return std::tuple(bool(d.decompose), bool(d.gradient), bool(d.flops), bool(d.bytes));
  };
  return present(a.rules) == present(b.rules) ? "" : "which rules there are";
}

void refuse_difference(const RegisteredOp& first, const RegisteredOp& second) {
  const std::string d = difference(first, second);
  if (d.empty()) return;
  const auto who = [](std::string_view by) {
    return by == kOfTheApp ? std::string(by) : cat("plugin ", by);
  };
  fail(Code::incompatible, "op ", second.label, " version ", second.own_schema.version,
       " is registered already, by ", who(first.origin), "; ", who(second.origin),
       " describes it differently: ", d);
}

struct Registry {
  std::shared_mutex mutex;
  std::vector<std::unique_ptr<RegisteredOp>> ops;
  // By label, then by version.
  std::map<std::string, std::map<uint32_t, const RegisteredOp*>, std::less<>> by_label;
};
Registry& registry() {
  static Registry& the = *new Registry;  // never destroyed, because graphs point into it
  return the;
}

}  // namespace

void register_ops(std::span<const tenon_op_desc> given, std::string_view origin) {
  std::vector<std::unique_ptr<RegisteredOp>> fresh;
  for (const tenon_op_desc& desc : given) fresh.push_back(Reader(desc).read(origin));
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  const auto known = [&](const RegisteredOp& op, size_t before) -> const RegisteredOp* {
    for (size_t i = 0; i < before; ++i)
      if (fresh[i] && fresh[i]->label == op.label &&
          fresh[i]->own_schema.version == op.own_schema.version)
        return fresh[i].get();
    const auto versions = r.by_label.find(op.label);
    if (versions == r.by_label.end()) return nullptr;
    const auto found = versions->second.find(op.own_schema.version);
    return found == versions->second.end() ? nullptr : found->second;
  };
  for (size_t i = 0; i < fresh.size(); ++i) {
    const RegisteredOp* first = known(*fresh[i], i);
    if (!first) continue;
    refuse_difference(*first, *fresh[i]);
    fresh[i].reset();
  }
  r.ops.reserve(r.ops.size() + fresh.size());
  for (auto& op : fresh) {
    if (!op) continue;
    auto& versions = r.by_label[std::string(op->label)];
    versions.emplace(op->own_schema.version, op.get());
    r.ops.push_back(std::move(op));  // does not throw
  }
}

std::vector<const OpRecord*> registered_records() {
  Registry& r = registry();
  const std::shared_lock lock(r.mutex);
  std::vector<const OpRecord*> out;
  for (const auto& op : r.ops) out.push_back(op.get());
  return out;
}

const OpRecord* find_registered(std::string_view domain, std::string_view name, uint32_t version) {
  Registry& r = registry();
  const std::shared_lock lock(r.mutex);
  const auto found = r.by_label.find(cat(domain, ":", name));
  if (found == r.by_label.end() || found->second.empty()) return nullptr;
  const auto& versions = found->second;
  if (version == 0) return versions.rbegin()->second;
  const auto at = versions.lower_bound(version);
  return at == versions.end() ? nullptr : at->second;
}

std::string_view origin_of(const OpRecord& op) {
  return op.domain == "tenon" ? op.domain
                              : std::string_view(static_cast<const RegisteredOp&>(op).origin);
}

}  // namespace tenon::core
