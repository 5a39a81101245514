// SPDX-License-Identifier: Apache-2.0
// Rules: Einsum, by transpositions, sums and batched products.
#include <map>
#include <set>

#include "import/onnx/helpers.hpp"

namespace tenon::core::onnx {
namespace {

// A label of an axis: a letter, or 256 + k for the k-th axis of an ellipsis, counted from its end.
using Label = int;
using Labels = std::vector<Label>;

struct Term {
  Value value{};
  Labels labels{};
};

class Einsum {
 public:
  explicit Einsum(Call& c) : c_(c), b_(c.b) {}

  void run() {
    parse();
    for (Term& t : terms_) t = diagonal(t);
    Term all = terms_[0];
    if (terms_.size() == 1) all = summed(all, output_);
    for (size_t k = 1; k < terms_.size(); ++k) {
      // Labels that later terms or the output still need.
      std::set<Label> needed(output_.begin(), output_.end());
      for (size_t j = k + 1; j < terms_.size(); ++j)
        needed.insert(terms_[j].labels.begin(), terms_[j].labels.end());
      all = multiplied(all, terms_[k], needed);
    }
    all = summed(all, output_);
    c_.out_item(0, Item{.value = arranged(all, output_)});
  }

 private:
  Labels labels_of(std::string_view text, int rank) {
    Labels out;
    const size_t dots = text.find("...");
    const auto letters =
        static_cast<int>(dots == std::string_view::npos ? text.size() : text.size() - 3);
    const int hidden = rank - letters;
    if (hidden < 0 || (dots == std::string_view::npos && hidden != 0))
      c_.wrong("attribute equation: term '", text, "' does not fit rank ", rank);
    for (size_t i = 0; i < text.size(); ++i) {
      if (i == dots) {
        for (int k = hidden; k-- > 0;) out.push_back(256 + k);
        ellipsis_ = std::max(ellipsis_, hidden);
        i += 2;
      } else if (std::isalpha(static_cast<unsigned char>(text[i]))) {
        out.push_back(text[i]);
      } else {
        c_.wrong("attribute equation: unexpected '", text[i], "'");
      }
    }
    return out;
  }

  void parse() {
    std::string text;
    for (const char ch : c_.s("equation", ""))
      if (ch != ' ') text += ch;
    const size_t arrow = text.find("->");
    std::string left = text.substr(0, arrow);
    for (size_t k = 0; k < c_.inputs(); ++k) {
      const size_t comma = left.find(',');
      const std::string term = left.substr(0, comma);
      terms_.push_back({c_.value(k), labels_of(term, c_.rank(k))});
      const bool last = comma == std::string::npos;
      if (last != (k + 1 == c_.inputs()))
        c_.wrong("attribute equation: expected ", c_.inputs(), " terms, got '", left, "'");
      left = last ? std::string() : left.substr(comma + 1);
    }
    if (terms_.empty()) c_.wrong("expected at least one input");
    std::map<Label, int> times;
    for (const Term& t : terms_)
      for (const Label l : t.labels) ++times[l];
    if (arrow == std::string::npos) {
      for (int k = ellipsis_; k-- > 0;) output_.push_back(256 + k);
      for (const auto& [l, n] : times)
        if (l < 256 && n == 1) output_.push_back(l);
    } else {
      const std::string right = text.substr(arrow + 2);
      const bool dots = right.find("...") != std::string::npos;
      output_ = labels_of(right, static_cast<int>(right.size()) - (dots ? 3 - ellipsis_ : 0));
    }
    for (const Label l : output_)
      if (!times.contains(l) || std::count(output_.begin(), output_.end(), l) > 1)
        c_.wrong("attribute equation: a label of the output comes twice or in no term");
  }

  // Keeps one axis of those with the same label.
  Term diagonal(Term t) {
    for (size_t i = 0; i < t.labels.size(); ++i)
      for (size_t j = t.labels.size(); j-- > i + 1;) {
        if (t.labels[j] != t.labels[i]) continue;
        const auto last = static_cast<int>(t.labels.size()) - 1;
        Ints perm = iota_list(last + 1);
        perm.erase(perm.begin() + static_cast<ptrdiff_t>(j));
        perm.erase(perm.begin() + static_cast<ptrdiff_t>(i));
        perm.push_back(static_cast<int64_t>(i));
        perm.push_back(static_cast<int64_t>(j));
        Value x = b_.transpose(t.value, perm);
        Shape s = b_.shape(x);
        const int64_t n = s[last];
        if (s[last - 1] != n)
          c_.wrong("expected equal dims for a label that comes twice, got ", s.text());
        Shape flat;
        for (int k = 0; k < last - 1; ++k) flat.push(s[k]);
        flat.push(n * n);
        x = b_.reshape(x, flat);
        if (n > 0) x = b_.narrow(x, last - 1, 0, n, n + 1);
        const Label l = t.labels[i];
        t.labels.erase(t.labels.begin() + static_cast<ptrdiff_t>(j));
        t.labels.erase(t.labels.begin() + static_cast<ptrdiff_t>(i));
        t.labels.push_back(l);
        t.value = x;
        return diagonal(t);
      }
    return t;
  }

  Term summed(const Term& t, const Labels& kept) {
    const std::set<Label> keep(kept.begin(), kept.end());
    Ints axes;
    Term out{t.value, {}};
    for (size_t k = 0; k < t.labels.size(); ++k)
      if (keep.contains(t.labels[k]))
        out.labels.push_back(t.labels[k]);
      else
        axes.push_back(static_cast<int64_t>(k));
    if (!axes.empty()) out.value = b_.sum(t.value, axes, false);
    return out;
  }

  // The axes in this order; missing ones become 1.
  Value arranged(const Term& t, const Labels& order) {
    Ints perm;
    Shape out;
    for (const Label l : order) {
      const auto at = std::find(t.labels.begin(), t.labels.end(), l);
      if (at == t.labels.end()) {
        out.push(1);
        continue;
      }
      const auto k = static_cast<int>(at - t.labels.begin());
      perm.push_back(k);
      out.push(b_.shape(t.value)[k]);
    }
    return b_.reshape(b_.transpose(t.value, perm), out);
  }
  int64_t dim(const Term& t, Label l) const {
    const auto at = std::find(t.labels.begin(), t.labels.end(), l);
    return at == t.labels.end() ? 1 : b_.shape(t.value)[static_cast<int>(at - t.labels.begin())];
  }

  Term multiplied(const Term& p0, const Term& q0, const std::set<Label>& needed) {
    // A label of one term that nobody else has is summed first.
    const auto own_sums = [&](const Term& t, const Term& other) {
      Labels keep;
      for (const Label l : t.labels)
        if (needed.contains(l) || std::count(other.labels.begin(), other.labels.end(), l))
          keep.push_back(l);
      return summed(t, keep);
    };
    const Term p = own_sums(p0, q0), q = own_sums(q0, p0);
    Labels batch, rows, columns, inner;
    for (const Label l : p.labels) {
      const bool both = std::count(q.labels.begin(), q.labels.end(), l) > 0;
      (both ? needed.contains(l) ? batch : inner : rows).push_back(l);
    }
    for (const Label l : q.labels)
      if (!std::count(p.labels.begin(), p.labels.end(), l)) columns.push_back(l);
    Shape batch_dims;
    for (const Label l : batch) batch_dims.push(std::max(dim(p, l), dim(q, l)));
    const auto count = [&](const Term& t, const Labels& labels) {
      int64_t n = 1;
      for (const Label l : labels) n *= dim(t, l);
      return n;
    };
    for (const Label l : inner)
      if (dim(p, l) != dim(q, l))
        c_.wrong("dims of a label differ: ", dim(p, l), " and ", dim(q, l));
    // [batch.., rows, inner] times [batch.., inner, columns]
    const auto matrix = [&](const Term& t, const Labels& first, const Labels& second) {
      Labels order = batch;
      order.insert(order.end(), first.begin(), first.end());
      order.insert(order.end(), second.begin(), second.end());
      const Value x = arranged(t, order);
      Shape s;
      for (const Label l : batch) s.push(dim(t, l));
      s.push(count(t, first));
      s.push(count(t, second));
      return b_.reshape(x, s);
    };
    const Value y = matmul_any(b_, matrix(p, rows, inner), matrix(q, inner, columns), false, false);
    Term out;
    out.labels = batch;
    Shape s = batch_dims;
    for (const Label l : rows) out.labels.push_back(l), s.push(dim(p, l));
    for (const Label l : columns) out.labels.push_back(l), s.push(dim(q, l));
    out.value = b_.reshape(y, s);
    return out;
  }

  Call& c_;
  Builder& b_;
  std::vector<Term> terms_;
  Labels output_;
  int ellipsis_ = 0;
};

void einsum(Call& c) { Einsum(c).run(); }

constexpr Rule kRules[] = {
    {"Einsum", 12, einsum},
};

}  // namespace

std::span<const Rule> einsum_rules() { return kRules; }

}  // namespace tenon::core::onnx
