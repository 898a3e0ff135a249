(* The checker, and the theorem about it: what it accepts holds in every setting, for all parameter values. *)
From Coq Require Import Reals List Lra Lia ZArith QArith Qreals Bool.
From Coquelicot Require Import Coquelicot.
From Klsym Require Import Sums Tokens Setting Ring Statements Densities Rules.
Import ListNotations.
Open Scope R_scope.

(* ---------- rows: what is never negative ---------- *)
Inductive kind := Tangent | Square (region : option nat) | Variance.
(* scale factor^2 E_m[exp(v) ..]: exp(of) - 1 - of, a of^2, or the variance of of *)
Record row := Row { shape : kind; scale_ : term; factor : ep; at_index : index; at_measure : measure; weight : ep; of : ep }.
Record assumptions := Assume {
  assumed : premises;
  positive : list nat;                 (* parameters, by number *)
  regions : list (measure * ep) }.     (* what is assumed to be at least 0 wherever the measure has mass *)

Definition even (k : Z) : bool := Z.even k.
Definition positive_term (a : assumptions) (t : term) : bool :=
  let '(c, m, e) := t in
  (0 <? Qnum c)%Z && free m && forallb (fun '(_, k) => free k) e &&
  forallb (fun '(v, k) => match v with
    | Par i nz => even k || (nz && existsb (Nat.eqb i) (positive a)) | _ => false end) m.
Definition row_side (a : assumptions) (r : row) : option side :=
  let c := mul [scale_ r] (mul (tidy (factor r)) (tidy (factor r))) in
  if positive_term a (scale_ r) && constant (factor r) then
    match shape r, polynomial (weight r), polynomial (of r) with
    | Tangent, Some v, Some u =>
        Some [(c, [Mean (at_index r) (at_measure r) (mul (exp_ v) (sub (sub (exp_ u) one) (tidy (of r))))])]
    | Square g, Some v, _ =>
        let b := mul (exp_ v) (mul (tidy (of r)) (tidy (of r))) in
        match g with
        | None => Some [(c, [Mean (at_index r) (at_measure r) b])]
        | Some i => match nth_error (regions a) i with
            | Some (m, g) => guard (Nat.eqb (mcode m) (mcode (at_measure r)) && Nat.eqb (icode Single) (icode (at_index r)))
                [(c, [Mean Single (at_measure r) (mul b (tidy g))])]
            | None => None end end
    | Variance, Some [], _ =>
        let x := Mean (at_index r) (at_measure r) (tidy (of r)) in
        guard (probability (at_measure r) && negb (stepwise (at_index r)))
          [(c, [Mean (at_index r) (at_measure r) (mul (tidy (of r)) (tidy (of r)))]); (opp c, [x; x])]
    | _, _, _ => None end
  else None.
Fixpoint rows_side (a : assumptions) (l : list row) : option side :=
  match l with
  | [] => Some []
  | r :: l => match row_side a r, rows_side a l with Some x, Some y => Some (x ++ y) | _, _ => None end end.

(* ---------- parts ---------- *)
Inductive relation := Equal | AtMost.
Record part := Part {
  left : side; right : side; rel : relation;
  rows : list row;                 (* of an inequality: left + rows = right *)
  proof : list (side * rule) }.    (* the zeros that bridge the two, each times a side *)
Definition accept_part (a : assumptions) (known : list side) (c : part) : bool :=
  match zeros (assumed a) known (proof c), rows_side a (rows c), rel c, rows c with
  | Some z, Some r, AtMost, _ | Some z, Some r, Equal, [] => is_nil (normal (left c ++ r ++ minus (right c) ++ z))
  | _, _, _, _ => false end.
(* Each part may cite the equations before it. *)
Definition learn (c : part) (known : list side) : list side :=
  match rel c with Equal => known ++ [left c ++ minus (right c)] | AtMost => known ++ [[]] end.
Fixpoint accept_from (a : assumptions) (known : list side) (l : list part) : bool :=
  match l with [] => true | c :: l => accept_part a known c && accept_from a (learn c known) l end.
Definition accept (a : assumptions) (l : list part) : bool := accept_from a [] l.

Section Soundness.
Variable S : setting.
Variable par : nat -> bool -> R.
Hypothesis par_ok : forall i, par i true <> 0.
Notation env := (env S par). Notation dside := (dside S par). Notation datom := (datom S par).
Notation env_ok := (env_ok S par par_ok). Notation penv_ok := (penv_ok par par_ok).

Definition satisfied (a : assumptions) : Prop :=
  holds S par (assumed a) /\ (forall i, In i (positive a) -> 0 < par i true) /\
  (forall m g, In (m, g) (regions a) -> wherever S m (fun w => 0 <= den (env w) g)).
Definition true_part (c : part) : Prop :=
  match rel c with Equal => dside (left c) = dside (right c) | AtMost => dside (left c) <= dside (right c) end.

Lemma satisfied_free pos : (forall i, In i pos -> 0 < par i true) -> satisfied (Assume (Premises [] [] None [] []) pos []).
Proof. intros H. repeat split; try easy. intros k d E. destruct k; discriminate. Qed.
Lemma even_nonneg v x k : (invertible v = true -> x <> 0) -> even k = true -> 0 <= power v x k.
Proof.
  intros I H. apply Z.even_spec in H as [j ->]. unfold power. destruct (invertible v).
  - assert (N : x <> 0) by auto. replace (2 * j)%Z with (j + j)%Z by lia. rewrite powerRZ_add by exact N.
    apply Rle_0_sqr.
  - destruct (Z.leb_spec 0 j) as [P|P].
    + replace (Z.to_nat (2 * j)) with (Z.to_nat j + Z.to_nat j)%nat by lia. rewrite pow_add. apply Rle_0_sqr.
    + replace (Z.to_nat (2 * j)) with 0%nat by lia. simpl. lra.
Qed.
Lemma positive_term_ok a t : satisfied a -> positive_term a t = true -> 0 <= dterm (penv par) t.
Proof.
  intros [_ [P _]]. destruct t as [[c m] e]. cbn [positive_term dterm]. intros H.
  apply andb_prop in H as [H M]. apply andb_prop in H as [H _]. apply andb_prop in H as [C _].
  apply Z.ltb_lt in C. apply Rmult_le_pos; [apply Rmult_le_pos|left; apply exp_pos].
  - unfold Q2R. apply Rmult_le_pos; [apply IZR_le; lia|left; apply Rinv_0_lt_compat, IZR_lt; lia].
  - clear C. induction m as [|[v k] m IH]; cbn [dmon forallb] in *; [lra|].
    apply andb_prop in M as [M1 M2]. apply Rmult_le_pos; [|now apply IH].
    destruct v as [b sg|i nz|]; try discriminate. apply orb_prop in M1 as [M1|M1].
    + apply even_nonneg; [intros; now apply penv_ok|exact M1].
    + apply andb_prop in M1 as [N M1]. subst nz. apply existsb_exists in M1 as [j [J E]].
      apply Nat.eqb_eq in E; subst j. left. unfold power. cbn [invertible penv].
      apply powerRZ_lt. now apply P.
Qed.
Lemma tangent u : 0 <= exp u - 1 - u.
Proof. pose proof (exp_ineq1_le u). lra. Qed.
Lemma variance m i f : probability m = true -> stepwise i = false -> 0 <= mean S m i (fun w => f w * f w) - mean S m i f * mean S m i f.
Proof.
  intros M T. rewrite !plain_mean by exact T. set (c := E S m (theta S) 0 (draws i (size S)) f).
  replace (_ - c * c) with (E S m (theta S) 0 (draws i (size S)) (fun w => (f w - c) * (f w - c))).
  - apply E_nonneg. intros w. apply Rle_0_sqr.
  - rewrite (E_ext S m _ _ _ _ (fun w => f w * f w + ((- 2 * c) * f w + c * c))) by (intros; ring).
    rewrite !E_plus, (E_scal S m _ _ _ (- 2 * c)), E_const by (now destruct m).
    fold c. ring.
Qed.
Lemma row_ok a r z : satisfied a -> row_side a r = Some z -> 0 <= dside z.
Proof.
  intros A. unfold row_side. destruct (positive_term a (scale_ r) && constant (factor r))%bool eqn:G; [|discriminate].
  apply andb_prop in G as [G C]. apply (positive_term_ok a _ A) in G. clear C.
  set (c := mul _ _). assert (Cp : 0 <= den (penv par) c).
  { unfold c. rewrite !mul_ok by apply penv_ok. cbn [den]. rewrite Rplus_0_r.
    apply Rmult_le_pos; [exact G|]. apply Rle_0_sqr. }
  clearbody c. destruct r as [k sc f j m v o]. cbn [shape weight of at_measure at_index].
  destruct k as [|g|]; destruct (polynomial v) as [v'|] eqn:V; try discriminate.
  - destruct (polynomial o) as [u|] eqn:U; [|discriminate]. intros H. apply Some_inj in H; subst z.
    cbn [Statements.dside dproduct Statements.datom]. rewrite Rplus_0_r, Rmult_1_r.
    apply Rmult_le_pos; [exact Cp|]. apply mean_nonneg. intros w.
    rewrite mul_ok, !sub_ok, !exp_ok, one_ok, tidy_ok by apply env_ok.
    rewrite (polynomial_ok (env w) o u U).
    apply Rmult_le_pos; [left; apply exp_pos|apply tangent].
  - set (b := mul (exp_ v') _).
    assert (B : forall w, 0 <= den (env w) b).
    { intros w. unfold b. rewrite !mul_ok, exp_ok, tidy_ok by apply env_ok.
      apply Rmult_le_pos; [left; apply exp_pos|apply Rle_0_sqr]. }
    clearbody b. destruct g as [i|].
    + destruct (nth_error (regions a) i) as [[m' g]|] eqn:N; [|discriminate]. unfold guard.
      destruct (_ && _)%bool eqn:M; [|discriminate]. apply andb_prop in M as [M _]. apply Nat.eqb_eq, mcode_inj in M. subst m'.
      intros H. apply Some_inj in H; subst z. apply nth_error_In in N. destruct A as [_ [_ A]].
      pose proof (A _ _ N) as Ag. cbn [Statements.dside dproduct Statements.datom].
      rewrite Rplus_0_r, Rmult_1_r. apply Rmult_le_pos; [exact Cp|]. apply single_nonneg. intros x I.
      rewrite mul_ok, tidy_ok by apply env_ok. apply Rmult_le_pos; [apply B|now apply Ag].
    + intros H. apply Some_inj in H; subst z. cbn [Statements.dside dproduct Statements.datom].
      rewrite Rplus_0_r, Rmult_1_r. apply Rmult_le_pos; [exact Cp|]. now apply mean_nonneg.
  - destruct v' as [|]; [|discriminate]. unfold guard. destruct (_ && _)%bool eqn:M; [|discriminate].
    apply andb_prop in M as [M T]. apply negb_true_iff in T. intros H. apply Some_inj in H; subst z. cbn [Statements.dside dproduct Statements.datom at_index].
    rewrite opp_ok by apply penv_ok.
    pose proof (variance m j (fun w => den (env w) (tidy o)) M T) as Va.
    set (d := mean S m j (fun w => den (env w) (tidy o))) in *.
    replace (mean S m j (fun w => den (env w) (mul (tidy o) (tidy o))))
      with (mean S m j (fun w => den (env w) (tidy o) * den (env w) (tidy o))) by (apply mean_at_ext; intros w; now rewrite mul_ok by apply env_ok).
    nra.
Qed.
Lemma rows_ok a l z : satisfied a -> rows_side a l = Some z -> 0 <= dside z.
Proof.
  intros A. revert z; induction l as [|r l IH]; intros z; cbn [rows_side].
  - intros [= <-]. cbn. lra.
  - destruct (row_side a r) eqn:R1; [|discriminate]. destruct (rows_side a l); [|discriminate].
    intros H. apply Some_inj in H; subst z. rewrite app_ok. pose proof (row_ok a r _ A R1).
    pose proof (IH _ eq_refl). lra.
Qed.
Lemma accept_part_ok a known c : satisfied a -> List.Forall (fun z => dside z = 0) known ->
  accept_part a known c = true -> true_part c.
Proof.
  intros A K. unfold accept_part, true_part.
  destruct (zeros (assumed a) known (proof c)) as [z|] eqn:Z; [|discriminate].
  destruct (rows_side a (rows c)) as [r|] eqn:R1; [|discriminate].
  assert (Z0 : dside z = 0) by (destruct A as [P _]; eapply (zeros_ok S par par_ok); eassumption).
  pose proof (rows_ok a _ _ A R1) as R0. intros H.
  assert (N : is_nil (normal (left c ++ r ++ minus (right c) ++ z)) = true /\ (rel c = Equal -> rows c = [])).
  { destruct (rel c), (rows c); try discriminate; auto. split; [exact H|discriminate]. }
  destruct N as [N E]. apply (nil_ok S par par_ok) in N.
  rewrite !app_ok, (minus_ok S par par_ok), Z0 in N. destruct (rel c).
  - rewrite (E eq_refl) in R1. cbn in R1. injection R1 as <-. cbn in N. lra.
  - lra.
Qed.
Theorem accept_from_ok a known l : satisfied a -> List.Forall (fun z => dside z = 0) known ->
  accept_from a known l = true -> List.Forall true_part l.
Proof.
  intros A. revert known; induction l as [|c l IH]; intros known K; cbn [accept_from]; [constructor|].
  intros H. apply andb_prop in H as [H1 H2]. pose proof (accept_part_ok _ _ _ A K H1) as T.
  constructor; [exact T|]. apply (IH (learn c known)); [|exact H2]. unfold learn, true_part in *.
  destruct (rel c); apply List.Forall_app; (split; [exact K|]); constructor; auto.
  rewrite app_ok, (minus_ok S par par_ok), T. ring.
Qed.
End Soundness.

(* The one theorem. *)
Theorem accept_sound a l : accept a l = true ->
  forall S par, (forall i, par i true <> 0) -> satisfied S par a -> List.Forall (true_part S par) l.
Proof. intros H S par P A. eapply accept_from_ok; [exact P|exact A|constructor|exact H]. Qed.
