(* Softmax logits: the policy b(x) exp(t u(x)) / mass(t) is a setting, and its score is u - E_q[u]. *)
From Coq Require Import Reals List Lra.
From Coquelicot Require Import Coquelicot.
From Klsym Require Import Sums Setting.
Import ListNotations.
Open Scope R_scope.

Section Softmax.
Variable X : Type.
Variable xs : list X.
Variable at_hand : nat -> X.
Variables b u p mu : X -> R.
Hypothesis b_pos : forall x, 0 < b x.
Hypothesis b_sum : Sum xs b = 1.
Hypothesis p_pos : forall x, 0 < p x.
Hypothesis p_sum : Sum xs p = 1.
Hypothesis mu_pos : forall x, 0 < mu x.
Hypothesis mu_sum : Sum xs mu = 1.
Variable given : nat -> X -> R.
Variables known len : list X -> R.
Hypothesis len_nonzero : forall l, len l <> 0.
Variable n : nat.
Hypothesis n_ok : (2 <= n)%nat.
Variable f : nat -> nat -> R -> X -> R.
Hypothesis f_diff : forall i d l x, is_derive (fun l => f i d l x) l (f i (S d) l x).

Definition mass (t : R) := Sum xs (fun x => b x * exp (t * u x)).
Definition soft (t : R) (x : X) := b x * exp (t * u x) / mass t.
Lemma raw_pos t x : 0 < b x * exp (t * u x).
Proof. apply Rmult_lt_0_compat; [apply b_pos|apply exp_pos]. Qed.
Lemma mass_pos t : 0 < mass t.
Proof.
  unfold mass. destruct xs as [|y ys]; [cbn in b_sum; lra|]. cbn [Sum].
  assert (0 <= Sum ys (fun x => b x * exp (t * u x))) by (apply Sum_nonneg; intros; left; apply raw_pos).
  pose proof (raw_pos t y). lra.
Qed.
Lemma soft_pos t x : 0 < soft t x.
Proof. apply Rdiv_lt_0_compat; [apply raw_pos|apply mass_pos]. Qed.
Lemma soft_sum t : Sum xs (soft t) = 1.
Proof.
  unfold soft. rewrite (Sum_ext _ _ (fun x => / mass t * (b x * exp (t * u x)))) by (intros; unfold Rdiv; ring).
  rewrite Sum_scal. fold (mass t). pose proof (mass_pos t). field. lra.
Qed.
Lemma raw_derive t x : is_derive (fun t => b x * exp (t * u x)) t (b x * exp (t * u x) * u x).
Proof. auto_derive; [easy|ring]. Qed.
Lemma mass_derive t : is_derive mass t (Sum xs (fun x => b x * exp (t * u x) * u x)).
Proof. apply (Sum_derive xs (fun t x => b x * exp (t * u x))). intros; apply raw_derive. Qed.
Lemma soft_diff t x : ex_derive (fun t => soft t x) t.
Proof.
  eexists. apply is_derive_div; [apply raw_derive|apply mass_derive|]. pose proof (mass_pos t). lra.
Qed.
Lemma soft_0 x : soft 0 x = b x.
Proof.
  unfold soft, mass. rewrite (Sum_ext xs _ b) by (intros; rewrite Rmult_0_l, exp_0; ring).
  rewrite b_sum, Rmult_0_l, exp_0. field.
Qed.
Definition softmax : setting :=
  {| outcome := X; outcomes := xs; here := at_hand; theta := 0; q := soft; Setting.p := p; Setting.mu := mu;
     q_pos := soft_pos 0; q_sum := soft_sum; q_diff := soft_diff 0;
     Setting.p_pos := p_pos; Setting.p_sum := p_sum; Setting.mu_pos := mu_pos; Setting.mu_sum := mu_sum;
     Setting.given := given; any := known; Setting.length := len; length_nonzero := len_nonzero;
     fn := f; fn_diff := f_diff; size := n; size_ok := n_ok |}.
Lemma softmax_q x : q0 softmax x = b x.
Proof. exact (soft_0 x). Qed.
Theorem softmax_score x : s softmax x = u x - Sum xs (fun y => b y * u y).
Proof.
  apply is_derive_unique. cbn.
  apply is_derive_ext with (fun t => (ln (b x) + t * u x) + (-1) * ln (mass t)).
  - intros t. unfold soft. rewrite ln_div by (apply raw_pos || apply mass_pos).
    rewrite ln_mult, ln_exp by (apply b_pos || apply exp_pos).
    match goal with |- ?l = ?r => change (@eq R l r) end. ring.
  - replace (u x - _) with (u x + (-1) * (Sum xs (fun y => b y * exp (0 * u y) * u y) / mass 0)).
    + apply derive_plus; [auto_derive; [easy|ring]|]. apply derive_scal, derive_ln; [apply mass_pos|apply mass_derive].
    + replace (mass 0) with 1.
      * rewrite (Sum_ext xs (fun y => b y * exp (0 * u y) * u y) (fun y => b y * u y)); [field|].
        intros y _. rewrite Rmult_0_l, exp_0. ring.
      * unfold mass. rewrite (Sum_ext xs _ b); [easy|]. intros y _. rewrite Rmult_0_l, exp_0. ring.
Qed.
End Softmax.
