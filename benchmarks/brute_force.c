/* CA+ the plain way: every point against every node, one exponential per feature.
 *
 * What a careful programmer writes without a better idea than vector instructions. The nodes are kept transposed, so
 * that the innermost loop runs over nodes, needs no reduction and uses full vectors whatever the number of features;
 * the exponential is a polynomial that the compiler turns into fused multiply-adds on four lanes. The rest of the
 * algorithm (bandwidth, diversity by an incremental Cholesky factor, recency list) is what the package does.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* exp(-t), t >= 0: split off a power of two, then a polynomial on [-log(2)/2, log(2)/2]; about one unit in the last
 * place. The conversion to a 32-bit integer, rather than a magic number, survives -ffast-math. */
static inline double exp_neg(double t)
{
    const double log2e = 1.4426950408889634, ln2_hi = 0.6931471803691238, ln2_lo = 1.9082149292705877e-10;
    t = t < 700.0 ? t : 700.0;
    int k = (int)(t * log2e + 0.5);
    double n = (double)k;
    double r = (n * ln2_hi - t) + n * ln2_lo;
    double p = 2.08767569878681e-09;
    p = p * r + 2.505210838544172e-08;
    p = p * r + 2.755731922398589e-07;
    p = p * r + 2.7557319223985893e-06;
    p = p * r + 2.48015873015873e-05;
    p = p * r + 0.0001984126984126984;
    p = p * r + 0.001388888888888889;
    p = p * r + 0.008333333333333333;
    p = p * r + 0.041666666666666664;
    p = p * r + 0.16666666666666666;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    long long bits = ((long long)(1023 - k)) << 52;
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

/* total[k] = sum over features of the kernel between x and node k. Tiles stay in the first-level cache. */
static void kernel_sums(const double *transposed, long capacity, long n, const double *x, long d, double inverse,
                        double *restrict total)
{
    for (long begin = 0; begin < n; begin += 512) {
        long width = n - begin < 512 ? n - begin : 512;
        double *restrict tile = total + begin;
        for (long k = 0; k < width; k++) tile[k] = 0.0;
        for (long j = 0; j < d; j++) {
            const double *w = transposed + j * capacity + begin;
            double xj = x[j];
            for (long k = 0; k < width; k++) {
                double diff = xj - w[k];
                tile[k] += exp_neg(diff * diff * inverse);
            }
        }
    }
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double bandwidth(const double *points, const long *rows, long n, long d, double *mean, double *spread)
{
    for (long j = 0; j < d; j++) mean[j] = spread[j] = 0.0;
    for (long i = 0; i < n; i++)
        for (long j = 0; j < d; j++) mean[j] += points[rows[i] * d + j];
    for (long j = 0; j < d; j++) mean[j] /= n;
    for (long i = 0; i < n; i++)
        for (long j = 0; j < d; j++) {
            double diff = points[rows[i] * d + j] - mean[j];
            spread[j] += diff * diff;
        }
    double power = 1.0 / (4 + d), factor = pow(4.0 / (2 + d), power) * pow((double)n, -power);
    for (long j = 0; j < d; j++) {
        double std = n > 1 ? sqrt(spread[j] / (n - 1)) : 0.0;
        spread[j] = factor * (std > 0.0 ? std : 1e-6);
    }
    qsort(spread, d, sizeof(double), ascending);
    return d % 2 ? spread[d / 2] : (spread[d / 2 - 1] + spread[d / 2]) / 2.0;
}

typedef struct {
    long n, capacity, d, newest, n_active;
    double *nodes, *transposed, *widths;
    long *counts, *newer, *older;
    double mean_width, last_width;
} Network;

static void grow(Network *net)
{
    long old = net->capacity, d = net->d;
    net->capacity = 2 * old;
    net->nodes = realloc(net->nodes, net->capacity * d * sizeof(double));
    net->widths = realloc(net->widths, net->capacity * sizeof(double));
    net->counts = realloc(net->counts, net->capacity * sizeof(long));
    net->newer = realloc(net->newer, net->capacity * sizeof(long));
    net->older = realloc(net->older, net->capacity * sizeof(long));
    double *wider = malloc(net->capacity * d * sizeof(double));
    for (long j = 0; j < d; j++) memcpy(wider + j * net->capacity, net->transposed + j * old, old * sizeof(double));
    free(net->transposed);
    net->transposed = wider;
}

static void to_front(Network *net, long k, int present)
{
    if (net->newest == k) return;
    if (present) {
        net->older[net->newer[k]] = net->older[k];
        if (net->older[k] >= 0) net->newer[net->older[k]] = net->newer[k];
    }
    net->newer[k] = -1;
    net->older[k] = net->newest;
    if (net->newest >= 0) net->newer[net->newest] = k;
    net->newest = k;
}

static void append(Network *net, const double *x)
{
    if (net->n == net->capacity) grow(net);
    long k = net->n++;
    memcpy(net->nodes + k * net->d, x, net->d * sizeof(double));
    for (long j = 0; j < net->d; j++) net->transposed[j * net->capacity + k] = x[j];
    net->counts[k] = 1;
    net->widths[k] = net->last_width;
    to_front(net, k, 0);
}

static void set_mean_width(Network *net)
{
    double total = 0.0;
    for (long k = 0; k < net->n; k++) total += net->widths[k];
    net->mean_width = total / net->n;
}

static double recent_width(Network *net, long *rows, double *mean, double *spread)
{
    long n = 0;
    for (long k = net->newest; k >= 0 && n < net->n_active; k = net->older[k]) rows[n++] = k;
    return bandwidth(net->nodes, rows, n, net->d, mean, spread);
}

static void move_node(Network *net, long k, const double *x, double share)
{
    for (long j = 0; j < net->d; j++) {
        double w = net->nodes[k * net->d + j];
        w += (x[j] - w) * share;
        net->nodes[k * net->d + j] = net->transposed[j * net->capacity + k] = w;
    }
}

/* Learn all n rows; return the number of nodes and, by the pointers, their counts (caller frees) and V. */
long ca_plus(const double *points, long n, long d, long **counts_out, double *threshold_out)
{
    Network net = {.capacity = 16, .d = d, .newest = -1};
    net.nodes = malloc(16 * d * sizeof(double));
    net.transposed = malloc(16 * d * sizeof(double));
    net.widths = malloc(16 * sizeof(double));
    net.counts = malloc(16 * sizeof(long));
    net.newer = malloc(16 * sizeof(long));
    net.older = malloc(16 * sizeof(long));
    long room = 16, *rows = malloc((n > 10 ? n : 10) * sizeof(long));
    double *mean = malloc(d * sizeof(double)), *spread = malloc(d * sizeof(double));
    double *total = malloc(room * sizeof(double)), *factor = NULL, log_det = 0.0, threshold = 1.0;
    int singular = 0;
    for (long i = 0; i < 10; i++) rows[i] = i;
    net.last_width = bandwidth(points, rows, n < 10 ? n : 10, d, mean, spread);

    for (long i = 0; i < n; i++) {
        const double *x = points + i * d;
        if (net.capacity > room || net.n == net.capacity) {
            room = 2 * net.capacity;
            total = realloc(total, room * sizeof(double));
        }
        if (net.n_active == 0) {
            append(&net, x);
            set_mean_width(&net);
            long k = net.n - 1;
            factor = realloc(factor, (size_t)net.n * (net.n + 1) / 2 * sizeof(double));
            double *row = factor + k * (k + 1) / 2, square = 0.0;
            kernel_sums(net.transposed, net.capacity, k, x, d, 0.5 / (net.mean_width * net.mean_width), total);
            for (long a = 0; a < k && !singular; a++) {
                const double *other = factor + a * (a + 1) / 2;
                double value = exp(total[a] / d);
                for (long b = 0; b < a; b++) value -= other[b] * row[b];
                row[a] = value / other[a];
                square += row[a] * row[a];
            }
            double pivot = exp(1.0) - square;
            if (pivot <= 1e-13) singular = 1;
            else {
                row[k] = sqrt(pivot);
                log_det += log(pivot);
            }
            if (net.n >= 10 && (singular || log_det < log(1e-6))) {
                net.n_active = net.n;
                net.last_width = net.mean_width = recent_width(&net, rows, mean, spread);
                for (long a = 0; a < net.n; a++) net.widths[a] = net.last_width;
                threshold = 0.0;
                for (long a = 0; a < net.n; a++) {
                    double best = 0.0;
                    kernel_sums(net.transposed, net.capacity, net.n, net.nodes + a * d, d,
                                0.5 / (net.mean_width * net.mean_width), total);
                    for (long b = 0; b < net.n; b++)
                        if (b != a && total[b] / d < 1.0 && total[b] / d > best) best = total[b] / d;
                    threshold += sqrt(1.0 - best);
                }
                threshold /= net.n;
            }
            continue;
        }
        kernel_sums(net.transposed, net.capacity, net.n, x, d, 0.5 / (net.mean_width * net.mean_width), total);
        long s1 = -1, s2 = -1;
        double c1 = -1.0, c2 = -1.0;
        for (long k = 0; k < net.n; k++) {
            if (total[k] > c1) s2 = s1, c2 = c1, s1 = k, c1 = total[k];
            else if (total[k] > c2) s2 = k, c2 = total[k];
        }
        c1 /= d, c2 /= d;
        double cim1 = c1 < 1.0 ? sqrt(1.0 - c1) : 0.0, cim2 = c2 < 1.0 ? sqrt(1.0 - c2) : 0.0;
        if (threshold < cim1) {
            append(&net, x);
            net.last_width = net.widths[net.n - 1] = recent_width(&net, rows, mean, spread);
            set_mean_width(&net);
        } else {
            net.counts[s1] += 1;
            move_node(&net, s1, x, 1.0 / net.counts[s1]);
            to_front(&net, s1, 1);
            if (s2 >= 0 && cim2 <= threshold) move_node(&net, s2, x, 0.01 / net.counts[s2]);
        }
    }
    *counts_out = net.counts;
    *threshold_out = threshold;
    free(net.nodes), free(net.transposed), free(net.widths), free(net.newer), free(net.older);
    free(rows), free(mean), free(spread), free(total), free(factor);
    return net.n;
}

void release(long *counts)
{
    free(counts);
}
