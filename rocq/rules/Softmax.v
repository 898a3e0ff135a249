(* Softmax logits: next-token probabilities b(x|v) exp(t u(v, x)) / mass(t) are a setting, and the score of a token is
   u - E_q[u], given its prefix. *)
From Coq Require Import Reals List Lra.
From Coquelicot Require Import Coquelicot.
From Klsym Require Import Sums Tokens Setting.
Import ListNotations.
Open Scope R_scope.

Section Softmax.
Variable X : Type.
Variable next : list X -> list X.
Variable more : nat.
Hypothesis starts : next [] <> [].
Variable at_hand : nat -> list X.
Hypothesis at_hand_ok : forall k, at_hand k <> [].
Variables b u p mu : list X -> X -> R.
Hypothesis b_pos : forall v x, 0 < b v x.
Hypothesis b_sum : forall v, next v <> [] -> Sum (next v) (b v) = 1.
Hypothesis p_pos : forall v x, 0 < p v x.
Hypothesis p_sum : forall v, next v <> [] -> Sum (next v) (p v) = 1.
Hypothesis mu_pos : forall v x, 0 < mu v x.
Hypothesis mu_sum : forall v, next v <> [] -> Sum (next v) (mu v) = 1.
Variable third : list X -> X -> R.
Hypothesis third_pos : forall v x, 0 < third v x.
Hypothesis third_sum : forall v, next v <> [] -> Sum (next v) (third v) = 1.
Variable paid : nat -> list X -> X -> R.
Variable known : nat -> list (@segment X) -> R.
Variable n : nat.
Hypothesis n_ok : (2 <= n)%nat.
Variable f : nat -> nat -> R -> @segment X -> R.
Hypothesis f_diff : forall i d l x, is_derive (fun l => f i d l x) l (f i (S d) l x).

Variable named : nat -> R -> R -> list (list (@segment X)) -> R.

Definition mass (t : R) v := match next v with [] => 1 | l => Sum l (fun x => b v x * exp (t * u v x)) end.
Definition soft (t : R) v (x : X) := b v x * exp (t * u v x) / mass t v.
Lemma raw_pos t v x : 0 < b v x * exp (t * u v x).
Proof. apply Rmult_lt_0_compat; [apply b_pos|apply exp_pos]. Qed.
Lemma mass_pos t v : 0 < mass t v.
Proof.
  unfold mass. destruct (next v) as [|y ys]; [lra|]. cbn [Sum].
  assert (0 <= Sum ys (fun x => b v x * exp (t * u v x))) by (apply Sum_nonneg; intros; left; apply raw_pos).
  pose proof (raw_pos t v y). lra.
Qed.
Lemma mass_is t v : next v <> [] -> mass t v = Sum (next v) (fun x => b v x * exp (t * u v x)).
Proof. intros N. unfold mass. now destruct (next v). Qed.
Lemma soft_pos t v x : 0 < soft t v x.
Proof. apply Rdiv_lt_0_compat; [apply raw_pos|apply mass_pos]. Qed.
Lemma soft_sum t v : next v <> [] -> Sum (next v) (soft t v) = 1.
Proof.
  intros N. unfold soft. rewrite (Sum_ext _ _ (fun x => / mass t v * (b v x * exp (t * u v x)))) by (intros; unfold Rdiv; ring).
  rewrite Sum_scal, <- (mass_is t v N). pose proof (mass_pos t v). field. lra.
Qed.
Lemma raw_derive t v x : is_derive (fun t => b v x * exp (t * u v x)) t (b v x * exp (t * u v x) * u v x).
Proof. auto_derive; [easy|ring]. Qed.
Lemma mass_derive t v : is_derive (fun t => mass t v) t (Sum (next v) (fun x => b v x * exp (t * u v x) * u v x)).
Proof.
  unfold mass. destruct (next v) as [|y l]; [apply derive_const|].
  apply (Sum_derive (y :: l) (fun t x => b v x * exp (t * u v x))). intros; apply raw_derive.
Qed.
Lemma soft_diff t v x : ex_derive (fun t => soft t v x) t.
Proof.
  eexists. apply is_derive_div; [apply raw_derive|apply mass_derive|]. pose proof (mass_pos t v). lra.
Qed.
Lemma mass_0 v : mass 0 v = 1.
Proof.
  destruct (nil_or_not (next v)) as [N|N]; [unfold mass; now rewrite N|]. rewrite mass_is, <- (b_sum v N) by exact N.
  apply Sum_ext; intros. rewrite Rmult_0_l, exp_0; ring.
Qed.
Lemma soft_0 v x : soft 0 v x = b v x.
Proof. unfold soft. rewrite mass_0, Rmult_0_l, exp_0. field. Qed.
Definition softmax : setting :=
  {| token := X; Setting.next := next; Setting.more := more; Setting.starts := starts; here := at_hand; here_ok := at_hand_ok;
     theta := 0; next_q := soft; next_p := p; next_mu := mu;
     next_q_pos := soft_pos 0; next_q_sum := soft_sum; next_q_diff := soft_diff 0;
     next_p_pos := p_pos; next_p_sum := p_sum; next_mu_pos := mu_pos; next_mu_sum := mu_sum;
     next_old := third; next_old_pos := third_pos; next_old_sum := third_sum;
     Setting.paid := paid; any := known; fn := f; fn_diff := f_diff; names := named; size := n; size_ok := n_ok |}.
Lemma softmax_q x : q0 softmax x = product b (fst x) (snd x).
Proof.
  unfold q0, q. cbn [theta next_q softmax]. destruct x as [v l]. cbn [fst snd]. revert v.
  induction l as [|a l IH]; intros v; cbn [product]; [reflexivity|]. now rewrite soft_0, IH.
Qed.
Theorem softmax_score v x : s softmax (v, [x]) = u v x - Sum (next v) (fun y => b v y * u v y).
Proof.
  apply is_derive_unique. unfold q. cbn [fst snd product theta next_q softmax].
  apply is_derive_ext with (fun t => (ln (b v x) + t * u v x) + (-1) * ln (mass t v)).
  - intros t. rewrite Rmult_1_r. unfold soft. rewrite ln_div by (apply raw_pos || apply mass_pos).
    rewrite ln_mult, ln_exp by (apply b_pos || apply exp_pos).
    match goal with |- ?l = ?r => change (@eq R l r) end. ring.
  - replace (u v x - _) with (u v x + (-1) * (Sum (next v) (fun y => b v y * exp (0 * u v y) * u v y) / mass 0 v)).
    + apply derive_plus; [auto_derive; [easy|ring]|]. apply derive_scal, (derive_ln (fun t => mass t v)); [apply mass_pos|apply mass_derive].
    + rewrite mass_0. rewrite (Sum_ext (next v) (fun y => b v y * exp (0 * u v y) * u v y) (fun y => b v y * u v y)); [field|].
      intros y _. rewrite Rmult_0_l, exp_0. ring.
Qed.
End Softmax.

(* samples of one token *)
Definition one_token {X} (xs : list X) (v : list X) : list X := match v with [] => xs | _ => [] end.
Lemma one_token_next {X} (xs : list X) (b : X -> R) v : Sum xs b = 1 -> one_token xs v <> [] -> Sum (one_token xs v) b = 1.
Proof. destruct v; [auto|now intros _ H]. Qed.
Definition sole {X} (x : X) : @segment X := ([], [x]).
Lemma one_token_outcomes S xs : next S = one_token xs -> more S = O -> outcomes S = map sole (next S []).
Proof.
  intros N M. unfold outcomes. rewrite M. pose proof (starts S) as Z. cbn [walk]. rewrite N in *. cbn [one_token] in *.
  destruct xs as [|x l]; [easy|]. generalize (x :: l) as ys. induction ys as [|y ys IH]; [reflexivity|].
  cbn [flat_map map app]. f_equal. exact IH.
Qed.
