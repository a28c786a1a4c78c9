#include "overlap.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

namespace exattn {

namespace {

// Bounds the time of one question to some milliseconds. Layouts of real tensors take a few dozen steps.
constexpr int kWorkLimit = 1 << 18;

// a * b mod m, for 0 <= a, b < m < 2^62.
std::int64_t multiply_modulo(std::int64_t a, std::int64_t b, std::int64_t m) {
  if (m <= std::int64_t{1} << 31) {
    return a * b % m;
  }
  std::int64_t product = 0;
  for (; b != 0; b >>= 1) {
    if ((b & 1) != 0) {
      product += a;
      product -= product >= m ? m : 0;
    }
    a += a;
    a -= a >= m ? m : 0;
  }
  return product;
}

// The x with a * x = 1 mod m, for a and m without a common factor.
std::int64_t inverse_modulo(std::int64_t a, std::int64_t m) {
  std::int64_t x = 1;
  std::int64_t next_x = 0;
  for (std::int64_t remainder = a % m, divisor = m; divisor != 0;) {
    const std::int64_t quotient = remainder / divisor;
    remainder = std::exchange(divisor, remainder - quotient * divisor);
    x = std::exchange(next_x, x - quotient * next_x);
  }
  return x < 0 ? x + m : x;
}

// Is there an x with sum(coefficient_n * x_n) = target and 0 <= x_n <= limit_n? All coefficients and limits are above
// 0, and the largest sum is below 2^62. A depth-first search, largest coefficient first, that only tries values
// from which the rest can still reach the target: by size, and by its greatest common divisor.
class BoundedEquation {
public:
  explicit BoundedEquation(int &work_counter) : work(work_counter) {}

  void add(std::int64_t coefficient, std::int64_t limit) {
    for (std::size_t n = 0; n < size; ++n) {
      if (term[n].coefficient == coefficient) {
        term[n].limit += limit;
        return;
      }
    }
    term[size++] = {coefficient, limit, 0, 0, 1, 0};
  }

  Overlap solve(std::int64_t target) {
    std::sort(term.begin(), term.begin() + static_cast<std::ptrdiff_t>(size),
              [](const Term &a, const Term &b) { return a.coefficient > b.coefficient; });
    for (std::size_t n = size; n-- > 0;) {
      Term &t = term[n];
      const Term rest = n + 1 < size ? term[n + 1] : Term{};
      t.reach = t.coefficient * t.limit + rest.reach;
      t.divisor = std::gcd(t.coefficient, rest.divisor);
      if (n + 1 < size) {
        t.modulus = rest.divisor / t.divisor;
        t.inverse = inverse_modulo(t.coefficient / t.divisor, t.modulus);
      }
    }
    if (size == 0 || target <= 0 || target > term[0].reach) {
      return target == 0 ? Overlap::kFound : Overlap::kNone;
    }
    return target % term[0].divisor == 0 ? search(0, target) : Overlap::kNone;
  }

private:
  struct Term {
    std::int64_t coefficient;
    std::int64_t limit;
    std::int64_t reach;   // the largest sum of this term and those after it
    std::int64_t divisor; // the greatest common divisor of their coefficients
    std::int64_t modulus; // in which this x is determined by the target
    std::int64_t inverse; // of coefficient / divisor
  };

  // The target is within reach of the terms from n on, and a multiple of their divisor.
  Overlap search(std::size_t n, std::int64_t target) {
    const Term &t = term[n];
    if (n + 1 == size) {
      return Overlap::kFound;
    }
    const Term &rest = term[n + 1];
    const std::int64_t missing = target - rest.reach;
    const std::int64_t low = missing <= 0 ? 0 : (missing - 1) / t.coefficient + 1;
    const std::int64_t high = std::min(t.limit, target / t.coefficient);
    if (low > high) {
      return Overlap::kNone;
    }
    const std::int64_t residue = multiply_modulo(target / t.divisor % t.modulus, t.inverse, t.modulus);
    const std::int64_t excess = (high - residue) % t.modulus;
    for (std::int64_t x = high - (excess < 0 ? excess + t.modulus : excess); x >= low; x -= t.modulus) {
      if (--work < 0) {
        return Overlap::kUnproven;
      }
      const Overlap found = search(n + 1, target - x * t.coefficient);
      if (found != Overlap::kNone) {
        return found;
      }
    }
    return Overlap::kNone;
  }

  int &work;
  std::size_t size = 0;
  std::array<Term, 8> term{};
};

} // namespace

Overlap find_overlap(const Footprint &a, const Footprint &b) noexcept {
  if (a.empty || b.empty) {
    return Overlap::kNone;
  }
  const std::uint64_t a_size = static_cast<std::uint64_t>(a.extent + a.width);
  const std::uint64_t b_size = static_cast<std::uint64_t>(b.extent + b.width);
  if (a.first < b.first ? b.first - a.first >= a_size : a.first - b.first >= b_size) {
    return Overlap::kNone;
  }
  // a.first + sum(i * a.stride) = b.first + sum(j * b.stride) + shift, for every shift at which two elements share a
  // byte. j is counted down from its end to make every coefficient positive.
  int work = kWorkLimit;
  BoundedEquation equation(work);
  for (std::size_t n = 0; n < static_cast<std::size_t>(a.rank); ++n) {
    equation.add(a.stride[n], a.count[n] - 1);
  }
  for (std::size_t n = 0; n < static_cast<std::size_t>(b.rank); ++n) {
    equation.add(b.stride[n], b.count[n] - 1);
  }
  const std::int64_t distance = static_cast<std::int64_t>(b.first - a.first); // below 2^61 either way, as seen above
  for (std::int64_t shift = 1 - a.width; shift < b.width; ++shift) {
    const Overlap found = equation.solve(distance + b.extent + shift);
    if (found != Overlap::kNone) {
      return found;
    }
  }
  return Overlap::kNone;
}

Overlap find_self_overlap(const Footprint &a) noexcept {
  if (a.empty) {
    return Overlap::kNone;
  }
  if (a.repeats) {
    return Overlap::kFound;
  }
  // Two tuples that differ, first in dimension n, where the one is greater by d >= 1: d * stride[n] plus the later
  // differences, each from -(count - 1) to count - 1, is 0. Every difference is counted from its lower end.
  int work = kWorkLimit;
  const std::size_t rank = static_cast<std::size_t>(a.rank);
  for (std::size_t n = 0; n < rank; ++n) {
    BoundedEquation equation(work);
    if (a.count[n] > 2) {
      equation.add(a.stride[n], a.count[n] - 2);
    }
    std::int64_t target = -a.stride[n];
    for (std::size_t later = n + 1; later < rank; ++later) {
      equation.add(a.stride[later], 2 * (a.count[later] - 1));
      target += a.stride[later] * (a.count[later] - 1);
    }
    const Overlap found = equation.solve(target);
    if (found != Overlap::kNone) {
      return found;
    }
  }
  return Overlap::kNone;
}

} // namespace exattn
