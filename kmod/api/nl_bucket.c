// SPDX-License-Identifier: GPL-2.0-only
/* Buckets of GPU time. */
#include "compat.h"
#include "netlink.h"
#include "spend.h"

#define RATE_MAX_US (1ULL * USEC_PER_SEC)
#define BURST_MAX_US (3600ULL * USEC_PER_SEC)
#define BURST_PART 10	/* of a second: what comes in then is the burst of a bucket that names none */

static const struct ds_nl_names names = {
	.pad = DETSHARE_A_BUCKET_PAD,
	.kind = DETSHARE_A_BUCKET_KIND,
	.pid = DETSHARE_A_BUCKET_PID,
	.start = DETSHARE_A_BUCKET_START_TIME,
	.cgroup = DETSHARE_A_BUCKET_CGROUP_ID,
	.tenant = DETSHARE_A_BUCKET_TENANT,
};

static int put_u64(struct sk_buff *skb, int attribute, u64 value)
{
	return nla_put_u64_64bit(skb, attribute, value, DETSHARE_A_BUCKET_PAD);
}

static int put_bucket(struct sk_buff *skb, const struct ds_bucket_info *bucket)
{
	return ds_nl_put_subject(skb, &names, &bucket->subject) ?:
	       put_u64(skb, DETSHARE_A_BUCKET_RATE_US, bucket->rate_us) ?:
	       put_u64(skb, DETSHARE_A_BUCKET_BURST_US, bucket->burst_us) ?:
	       put_u64(skb, DETSHARE_A_BUCKET_LEVEL_US, bucket->level_us) ?:
	       put_u64(skb, DETSHARE_A_BUCKET_USED_US, bucket->used_us) ?:
	       put_u64(skb, DETSHARE_A_BUCKET_EMPTIED, bucket->emptied) ?:
	       nla_put_u8(skb, DETSHARE_A_BUCKET_EMPTY, bucket->empty);
}

int ds_nl_bucket_dump(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct nlattr **attrs = ds_dump_attrs(cb);
	struct ds_bucket_info bucket;
	void *header;
	int err = 0;

	for (; !err && ds_bucket_at(cb->args[0], &bucket); ds_subject_put(&bucket.subject)) {
		if (ds_nl_subject_asked(attrs, &names, &bucket.subject)) {
			header = ds_nl_entry(skb, cb, DETSHARE_CMD_BUCKET_GET);
			err = header ? ds_nl_entry_end(skb, header, put_bucket(skb, &bucket)) : -EMSGSIZE;
		}
		if (!err)
			cb->args[0]++;
	}
	return skb->len;
}

static int amounts_of(struct genl_info *info, u64 *rate, u64 *burst)
{
	struct nlattr *rate_attr = info->attrs[DETSHARE_A_BUCKET_RATE_US];
	struct nlattr *burst_attr = info->attrs[DETSHARE_A_BUCKET_BURST_US];

	if (!rate_attr) {
		NL_SET_ERR_MSG(info->extack, "how much? add the attribute rate-us, microseconds of GPU time in each second");
		return -EINVAL;
	}
	*rate = nla_get_u64(rate_attr);
	if (!*rate || *rate > RATE_MAX_US) {
		NL_SET_ERR_MSG_ATTR(info->extack, rate_attr,
				    "rate-us is 1 to 1000000; to hold somebody altogether use hold-set, to let him go bucket-del");
		return -ERANGE;
	}
	*burst = burst_attr ? nla_get_u64(burst_attr) : max(*rate / BURST_PART, 1ULL);
	if (!*burst || *burst > BURST_MAX_US) {
		NL_SET_ERR_MSG_ATTR(info->extack, burst_attr, "burst-us is 1 to 3600000000, one hour");
		return -ERANGE;
	}
	return 0;
}

/* The bucket of a subject as it is now, its subject held; false: it has none. */
static bool find_bucket(const struct ds_subject *subject, struct ds_bucket_info *bucket)
{
	unsigned int at;

	for (at = 0; ds_bucket_at(at, bucket); at++) {
		if (ds_subject_same(&bucket->subject, subject))
			return true;
		ds_subject_put(&bucket->subject);
	}
	return false;
}

static int answer(struct genl_info *info, const struct ds_subject *subject)
{
	struct ds_bucket_info bucket;
	struct sk_buff *skb;
	void *header;
	int err = -ENOMEM;

	if (!find_bucket(subject, &bucket)) {
		NL_SET_ERR_MSG(info->extack, "the bucket was set, and taken away again by somebody at once: see bucket-get");
		return -ENOENT;
	}
	skb = ds_nl_answer(info, &header);
	if (skb)
		err = ds_nl_answer_end(skb, header, info, put_bucket(skb, &bucket));
	ds_subject_put(&bucket.subject);
	return err;
}

int ds_nl_bucket_set(struct sk_buff *request, struct genl_info *info)
{
	struct ds_subject subject;
	u64 rate, burst;
	int err;

	err = amounts_of(info, &rate, &burst) ?: ds_nl_check_driver(info->extack) ?:
	      ds_nl_subject_watched(info->attrs, &names, info->extack, &subject);
	if (err)
		return err;
	err = ds_bucket_set(&subject, rate, burst) ?: answer(info, &subject);
	ds_subject_put(&subject);
	return err;
}

int ds_nl_bucket_del(struct sk_buff *request, struct genl_info *info)
{
	struct ds_subject subject;
	int err;

	err = ds_nl_subject_known(info->attrs, &names, info->extack, &subject);
	if (err)
		return err;
	err = ds_bucket_del(&subject);
	if (err == -ENOENT)
		NL_SET_ERR_MSG(info->extack, "it has no bucket: bucket-get lists those in force");
	ds_subject_put(&subject);
	return err;
}
